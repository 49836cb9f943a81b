"""How fast an embedded cluster of three brokers starts, notices deaths and restarts, and what memory it takes.

`python -m benchmarks.macro.cluster_start` prints medians of some rounds, and their lowest and highest:

- wall time of the start, and the proportional memory of all processes with 50 partitions;
- the time of a kill -9, from it to a new leader in the controller's view, and of a controlled stop;
- of a killed broker with replicas of all 50 partitions, from its start: until its socket listens (`start` returns),
  until it answers ApiVersions to a client, which it does once the controller has unfenced it, until it is active in the
  controller's view, and until all partitions are in sync there.

The load average is printed beside: on a busy machine wall times say little.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import struct
import time

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker

ROUNDS = 3
PARTITIONS = 50
LIMIT_S = 120.0
DEATHS = 5


def memory_mib(pid: int | str) -> float:
    """Return the proportional set size of a process, in MiB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def await_answer(address: tuple[str, int]) -> None:
    """Ask a broker for ApiVersions, version 0, again and again until it answers; fail after LIMIT_S."""
    header = struct.pack(">hhih", 18, 0, 1, -1)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(address, 5) as sock:
            sock.sendall(struct.pack(">i", len(header)) + header)
            if sock.recv(4):
                return
        time.sleep(0.0002)
    raise TimeoutError(f"{address} did not answer within {LIMIT_S} s")


def measure() -> dict[str, float]:
    """Start a cluster, and measure it."""
    started = time.perf_counter()
    with EmbeddedCluster(brokers=3) as cluster:
        start_s = time.perf_counter() - started
        cluster.create_topic("measured", PARTITIONS)
        cluster.wait_until_in_sync()
        pids = cluster.ask({"command": "processes"})["pids"].values()
        memory = sum(map(memory_mib, pids))
        kills, failovers, stops = [], [], []
        restarts: list[list[float]] = []
        for partition in range(DEATHS):
            leader = cluster.leader("measured", partition)
            started = time.perf_counter()
            leader.kill()
            kills.append(time.perf_counter() - started)
            cluster.wait_for(lambda view: view.leader("measured", partition) not in (None, leader.id))  # noqa: B023
            failovers.append(time.perf_counter() - started)
            restarts.append(_restart(cluster, leader))
            started = time.perf_counter()
            leader.stop()
            stops.append(time.perf_counter() - started)
            leader.start()
            cluster.wait_until_in_sync()
    listening, answering, active, in_sync = (1000 * statistics.median(times) for times in zip(*restarts, strict=True))
    return {
        "start s": start_s,
        "memory MiB": memory,
        "kill ms": 1000 * statistics.median(kills),
        "kill to new leader ms": 1000 * statistics.median(failovers),
        "start to listening ms": listening,
        "start to answering ms": answering,
        "start to active ms": active,
        "start to in sync ms": in_sync,
        "controlled stop ms": 1000 * statistics.median(stops),
    }


def _restart(cluster: EmbeddedCluster, broker: ClusterBroker) -> list[float]:
    """Start a killed broker; return the seconds until it listens, answers, is active, and all is in sync."""
    started = time.perf_counter()
    times = []
    for step in (
        broker.start,
        lambda: await_answer(("127.0.0.1", broker.port)),
        lambda: cluster.wait_for(lambda view: broker.id in view.active_brokers),
        cluster.wait_until_in_sync,
    ):
        step()
        times.append(time.perf_counter() - started)
    return times


def main() -> None:
    """Print the medians."""
    rounds = [measure() for _ in range(ROUNDS)]
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        print(f"{name:26} {statistics.median(values):8.2f}  ({min(values):.2f}-{max(values):.2f})")
    print(f"{'load average':26} {os.getloadavg()[0]:8.2f}")


if __name__ == "__main__":
    main()
