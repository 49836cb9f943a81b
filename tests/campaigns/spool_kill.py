"""kill -9 of programs with a spool while their broker comes and goes: `python -m tests.campaigns.spool_kill`.

Each program continues the spool of the one before, sends numbered records and calls sync(); what it says after that is
promised. It is killed at a random moment; the broker is killed or started before some of the kills. A last program
delivers what is left. Then the topic has every promised record once, in its partition, in order.

Exit status 1 if one is lost, twice, misplaced or out of order.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker

PARTITIONS: Final = 3
OF_ONE_PROGRAM: Final = 1_000_000
PROGRAM: Final = f"""
import sys
from kafkaprod import Producer
servers, directory, number, body, memory = *sys.argv[1:3], *map(int, sys.argv[3:])
options = dict(linger_ms=2, batch_size=2000, max_block_ms=20_000, buffer_memory=memory)
producer = Producer(options, bootstrap_servers=servers, spool_dir=directory)
body = b" " * body
while True:
    first = number
    for number in range(first, first + 50):
        producer.send("orders", b"%d" % number + body, partition=number % {PARTITIONS})
    number += 1
    producer.sync()
    print(first, number, flush=True)
"""


@dataclass
class SpoolTally:
    """What happened."""

    kills: int = 0
    broker_kills: int = 0
    promised: int = 0
    records: int = 0
    lost: int = 0
    twice: int = 0
    misplaced: int = 0
    out_of_order: int = 0
    doubtful: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every promised record is there once, where it belongs."""
        return not (self.lost or self.twice or self.misplaced or self.out_of_order)


class Target(Protocol):
    """One broker, with the topic."""

    bootstrap_servers: str

    @property
    def is_running(self) -> bool: ...

    def kill(self) -> None: ...

    def restore(self) -> None: ...

    def numbers(self) -> dict[int, list[int]]: ...


class EmbeddedTarget:
    """The embedded broker."""

    def __init__(self) -> None:
        self._broker = EmbeddedBroker(topics={"orders": PARTITIONS}).start()
        self.bootstrap_servers = self._broker.bootstrap_servers

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    def kill(self) -> None:
        self._broker.kill()

    def restore(self) -> None:
        self._broker.restore()

    def numbers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for record in self._broker.records("orders"):
            found[record.partition].append(int(record.value or b""))
        return found

    def close(self) -> None:
        self._broker.stop()


class KafkaTarget:
    """A node of Apache Kafka, which is killed by SIGKILL."""

    def __init__(self) -> None:
        from tests.kafka.cluster import KafkaCluster

        self._cluster = KafkaCluster(1, jvm_options=("-Xmx512m",))
        self._cluster.start()
        self._cluster.create_topic("orders", PARTITIONS, replication_factor=1)
        self.bootstrap_servers = self._cluster.bootstrap()

    @property
    def is_running(self) -> bool:
        return self._cluster.is_running(1)

    def kill(self) -> None:
        self._cluster.kill9(1)

    def restore(self) -> None:
        if not self.is_running:
            self._cluster.start_node(1)
            self._cluster.wait_until_ready()

    def numbers(self) -> dict[int, list[int]]:
        from tests.kafka.reading import read_all

        found = read_all(self.bootstrap_servers, "orders", isolation_level="read_uncommitted")
        return {number: [int(record.value or b"") for record in records] for number, records in found.items()}

    def close(self) -> None:
        self._cluster.close()


def run(kills: int, seed: int, body_bytes: int = 0, memory_bytes: int = 64 << 20, *, kafka: bool = False) -> SpoolTally:
    """Kill so many programs; return what the topic has.

    Args:
        kills: How many.
        seed: Of the moments.
        body_bytes: Of each record, beside its number.
        memory_bytes: The programs' buffer_memory: an outage of a second is longer than a small one.
        kafka: The broker is Apache Kafka's.
    """
    source = random.Random(seed)
    tally = SpoolTally()
    promised: set[int] = set()
    with tempfile.TemporaryDirectory() as directory, closing(KafkaTarget() if kafka else EmbeddedTarget()) as broker:
        for kill in range(kills):
            promised |= _run_one(
                broker, [directory, str(kill * OF_ONE_PROGRAM), str(body_bytes), str(memory_bytes)], source, tally
            )
            tally.kills += 1
        broker.restore()
        with Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=directory) as producer:
            producer.flush(240)
            spool = producer.engine.spool
            tally.doubtful = 0 if spool is None else spool.doubtful_count
        found = broker.numbers()
    counts = Counter(number for numbers in found.values() for number in numbers)
    tally.promised, tally.records = len(promised), counts.total()
    tally.lost = len(promised - counts.keys())
    tally.twice = counts.total() - len(counts)
    tally.misplaced = sum(number % PARTITIONS != partition for partition, all_of in found.items() for number in all_of)
    tally.out_of_order = sum(one >= next_ for all_of in found.values() for one, next_ in pairwise(all_of))
    return tally


def _run_one(broker: Target, arguments: list[str], source: random.Random, tally: SpoolTally) -> set[int]:
    kill = tally.kills
    command = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, *arguments]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    said = program.stdout.readline() if kill == 0 else ""  # the first one must meet the cluster, to know the topic
    time.sleep(source.uniform(0.15, 1.2))
    if kill and source.random() < 0.4:
        if broker.is_running:
            tally.broker_kills += 1
            broker.kill()
        else:
            broker.restore()
        time.sleep(source.uniform(0.0, 0.6))
    program.kill()
    said += program.stdout.read()
    program.wait()
    whole = said[: said.rfind("\n") + 1]  # the last line may be cut
    return {number for line in whole.splitlines() for number in range(*map(int, line.split()))}


def main() -> int:
    """Run, and print what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spool_kill", description="kill -9 with a spool")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of the embedded broker")
    parser.add_argument("--body-bytes", type=int, default=0)
    parser.add_argument("--memory-bytes", type=int, default=64 << 20)
    options = parser.parse_args()
    started = time.monotonic()
    tally = run(options.kills, options.seed, options.body_bytes, options.memory_bytes, kafka=options.kafka)
    print(f"{tally}, {time.monotonic() - started:.0f} s, load {os.getloadavg()[0]:.1f}")
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
