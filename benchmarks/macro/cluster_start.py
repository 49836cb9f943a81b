"""How fast an embedded cluster of three brokers starts, notices deaths and restarts, and what memory it takes.

`python -m benchmarks.macro.cluster_start` prints medians of some rounds: wall time of the start, the proportional
memory of all processes with 50 partitions, the time from kill -9 to a new leader in the controller's view, the times
until a restarted broker listens and until it serves (unfenced), and the time of a controlled stop. The load average is
printed beside: on a busy machine wall times say little.
"""

from __future__ import annotations

import os
import statistics
import time

from kafkaprod.broker.embedding.cluster import EmbeddedCluster

ROUNDS = 3
PARTITIONS = 50
DEATHS = 5


def memory_mib(pid: int | str) -> float:
    """Return the proportional set size of a process, in MiB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def measure() -> dict[str, float]:
    """Start a cluster, and measure it."""
    started = time.perf_counter()
    with EmbeddedCluster(brokers=3) as cluster:
        start_s = time.perf_counter() - started
        cluster.create_topic("measured", PARTITIONS)
        cluster.wait_until_in_sync()
        pids = cluster.ask({"command": "processes"})["pids"].values()
        memory = sum(map(memory_mib, pids))
        failovers, restarts, services, stops = [], [], [], []
        for partition in range(DEATHS):
            leader = cluster.leader("measured", partition)
            started = time.perf_counter()
            leader.kill()
            cluster.wait_for(lambda view: view.leader("measured", partition) not in (None, leader.id))  # noqa: B023
            failovers.append(time.perf_counter() - started)
            started = time.perf_counter()
            leader.start()
            restarts.append(time.perf_counter() - started)
            cluster.wait_for(lambda view: leader.id in view.active_brokers)  # noqa: B023
            services.append(time.perf_counter() - started)
            cluster.wait_until_in_sync()
            started = time.perf_counter()
            leader.stop()
            stops.append(time.perf_counter() - started)
            leader.start()
            cluster.wait_until_in_sync()
    return {
        "start s": start_s,
        "memory MiB": memory,
        "kill to new leader ms": 1000 * statistics.median(failovers),
        "restart to listening ms": 1000 * statistics.median(restarts),
        "restart to serving ms": 1000 * statistics.median(services),
        "controlled stop ms": 1000 * statistics.median(stops),
    }


def main() -> None:
    """Print the medians."""
    rounds = [measure() for _ in range(ROUNDS)]
    for name in rounds[0]:
        print(f"{name:26} {statistics.median(each[name] for each in rounds):8.2f}")
    print(f"{'load average':26} {os.getloadavg()[0]:8.2f}")


if __name__ == "__main__":
    main()
