"""What a cluster of three brokers costs as its topics become more, beside Apache Kafka with three JVMs.

    python -m benchmarks.macro.cluster_sizes [--clusters embedded,kafka] [--topics 1,50,300,1000,3000] [--records 300]

Topics have one partition of three replicas, which is the dearest way to have so many partitions. Of each cluster and
each count, one after the other: seconds until it is there and until its topics are in sync; proportional memory of all
its processes; their CPU while nothing is sent, in percent of one core; their CPU for each record of one topic, and the
time to its acknowledgement (confluent-kafka, acks=all, linger 0, one record after the other, after as many that are not
counted); milliseconds from kill -9 of that topic's leader until both others name a new one, and seconds from the start
of the killed broker until all topics are in sync. The load average is printed beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.macro.clusters_beside import (
    BROKERS,
    CLUSTERS,
    TOPIC,
    Running,
    await_true,
    connected,
    leader_of,
)

IDLE_S = 10.0
STEP_TOPICS = 250  # made with one request
LIMIT_S = 300.0
_TICKS_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds that processes have used."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_S


def make_topics(admin: AdminClient, count: int) -> None:
    """Make the topics, and wait until all replicas of all of them are in sync."""
    names = [TOPIC, *(f"{TOPIC}-{number}" for number in range(1, count))]
    for start in range(0, count, STEP_TOPICS):
        new = [NewTopic(name, 1, BROKERS) for name in names[start : start + STEP_TOPICS]]
        for made in admin.create_topics(new, request_timeout=LIMIT_S).values():
            made.result(LIMIT_S)
    await_in_sync(admin, count)


def await_in_sync(admin: AdminClient, count: int) -> None:
    """Wait until all topics are in sync."""

    def is_in_sync() -> bool:
        topics = [topic for name, topic in admin.list_topics(timeout=60).topics.items() if name.startswith(TOPIC)]
        return len(topics) == count and all(
            len(part.isrs) == BROKERS for topic in topics for part in topic.partitions.values()
        )

    await_true(is_in_sync, limit_s=LIMIT_S, pause_s=0.02)


def _note(failed: list[object], error: object, _: object) -> None:
    failed.append(error)


def send_one_by_one(servers: str, count: int) -> list[float]:
    """Return the seconds to each record's acknowledgement."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0})
    times: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        failed: list[object] = []
        producer.produce(TOPIC, b"x" * 100, on_delivery=partial(_note, failed))
        while not failed:
            producer.poll(1)
        assert failed == [None]
        times.append(time.perf_counter() - begun)
    return times


def measure(name: str, count: int, records: int) -> dict[str, float]:
    """Start a cluster with so many topics, and measure it."""
    started = time.perf_counter()
    with CLUSTERS[name]() as running:
        admin = AdminClient({"bootstrap.servers": running.servers, "log_level": 0})
        await_true(lambda: len(admin.list_topics(timeout=10).brokers) == BROKERS)
        found = {"start s": time.perf_counter() - started}
        made = time.perf_counter()
        make_topics(admin, count)
        found["topics s"] = time.perf_counter() - made
        found["memory MiB"] = running.memory()
        send_one_by_one(running.servers, records)
        found["idle CPU %"] = 100 * cpu_of(running, lambda: time.sleep(IDLE_S)) / IDLE_S
        times: list[float] = []
        used = cpu_of(running, lambda: times.extend(send_one_by_one(running.servers, records)))
        found["CPU a record ms"] = 1000 * used / records
        found["record ms"] = 1000 * statistics.median(times)
        found["kill to new leader ms"], found["back in sync s"] = _death(running, admin, count)
    return found


def cpu_of(running: Running, work: Callable[[], object]) -> float:
    """Return the CPU seconds that a cluster uses while something is done."""
    before = cpu_s(running.pids())
    work()
    return cpu_s(running.pids()) - before


def _death(running: Running, admin: AdminClient, count: int) -> tuple[float, float]:
    assert running.kill is not None
    assert running.start is not None
    dead = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0].leader
    others = [running.address(node) for node in admin.list_topics(TOPIC, timeout=60).brokers if node != dead]
    with connected(others) as socks:
        begun = time.perf_counter()
        running.kill(dead)
        await_true(lambda: all(leader_of(sock) not in (-1, dead) for sock in socks))
        failover_ms = 1000 * (time.perf_counter() - begun)
    begun = time.perf_counter()
    running.start(dead)
    await_in_sync(admin, count)
    return failover_ms, time.perf_counter() - begun


def main() -> None:
    """Print a line for each cluster and count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.cluster_sizes")
    parser.add_argument("--clusters", default="embedded,kafka")
    parser.add_argument("--topics", default="1,50,300,1000,3000")
    parser.add_argument("--records", type=int, default=300)
    options = parser.parse_args()
    for count in map(int, options.topics.split(",")):
        for name in options.clusters.split(","):
            found = measure(name, count, options.records)
            figures = "  ".join(f"{figure} {value:.2f}" for figure, value in found.items())
            print(f"{name:8} {count:5} topics  {figures}  load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
