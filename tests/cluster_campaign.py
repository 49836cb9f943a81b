"""Breaks an embedded cluster many times under load, and checks that nothing acknowledged is lost or there twice.

`python -m tests.cluster_campaign --kills 100 --pauses 50 --cuts 50 --rolls 20 --power-cuts 10 --seed 1` draws the order
of the faults from the seed, sends with acks=all through kafkaprod (`send`, `send_many`) and confluent-kafka meanwhile,
reads all back with confluent-kafka and kafka-python, and prints the counts. Exit code 1: a record is lost, twice or
out of order, readers differ, or the cluster did not recover.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.support.cluster.reading import read_with_confluent, read_with_kafka_python

TOPICS = ("sent", "sent-many", "confluent")
PARTITIONS = 2


class Writer:
    """Sends numbered records to one topic, one partition after the other, and notes what was acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.failed: list[str] = []
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=topic)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; all records have their outcome then."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            {"sent": self._send, "sent-many": self._send_many, "confluent": self._confluent}[self.topic]()
        except Exception as error:
            self.failed.append(f"{type(error).__name__}: {error}")

    def _send(self) -> None:
        with self._producer() as producer:
            number = 0
            while not self._stop.wait(0.005):
                for partition in range(PARTITIONS):
                    value = b"%d" % number
                    future = producer.send(self.topic, value, partition=partition)
                    future.add_done_callback(self._noter(partition, value))
                number += 1
            producer.flush()

    def _send_many(self) -> None:
        with self._producer() as producer:
            number = 0
            while not self._stop.wait(0.02):
                for partition in range(PARTITIONS):
                    values = [b"%d" % each for each in range(number, number + 10)]
                    block = producer.send_many(self.topic, values, partition=partition)
                    block.wait()
                    if block.failed_count:
                        self.failed.append(f"{block.failed_count} records of a block")
                    else:
                        self.acknowledged[partition] += values
                number += 10

    def _confluent(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 3_000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stop.wait(0.005):
            for partition in range(PARTITIONS):
                value = b"%d" % number
                producer.produce(self.topic, value, partition=partition, on_delivery=self._on_delivery)
            producer.poll(0)
            number += 1
        if producer.flush(120):
            self.failed.append("confluent-kafka did not deliver all in 120 s")

    def _producer(self) -> Producer:
        return Producer(
            bootstrap_servers=self._servers, acks="all", delivery_timeout_ms=120_000, request_timeout_ms=3_000
        )

    def _on_delivery(self, error: Any, message: Any) -> None:
        self._note(message.partition(), message.value(), error)

    def _noter(self, partition: int, value: bytes) -> Callable[..., None]:
        return lambda future: self._note(partition, value, future.exception())

    def _note(self, partition: int, value: bytes, error: Any) -> None:
        if error is None:
            self.acknowledged[partition].append(value)
        else:
            self.failed.append(str(error))


def faults(counts: Counter[str], seed: int) -> list[str]:
    """Return the faults in the order that a seed draws."""
    kinds = list(counts.elements())
    random.Random(seed).shuffle(kinds)
    return kinds


def check(servers: str, writers: list[Writer]) -> list[str]:
    """Read everything back; return what is wrong."""
    wrong = []
    for writer in writers:
        read = read_with_confluent(servers, writer.topic, PARTITIONS)
        if read != read_with_kafka_python(servers, writer.topic, PARTITIONS):
            wrong.append(f"{writer.topic}: the readers differ")
        for partition, values in read.items():
            acknowledged = writer.acknowledged[partition]
            lost = len(set(acknowledged) - set(values))
            twice = len(values) - len(set(values))
            if lost or twice:
                wrong.append(f"{writer.topic}-{partition}: {lost} lost, {twice} twice")
            if [int(value) for value in values] != sorted({int(value) for value in values}):
                wrong.append(f"{writer.topic}-{partition}: out of order")
        wrong += [f"{writer.topic} failed: {reason}" for reason in writer.failed[:3]]
    return wrong


def run(counts: Counter[str], seed: int, limit_s: float) -> int:
    """Run a campaign; return the exit code."""
    dice, done = random.Random(seed), Counter[str]()
    started = time.monotonic()
    with EmbeddedCluster(brokers=3, topics=dict.fromkeys(TOPICS, PARTITIONS), session_timeout_ms=3_000) as cluster:
        writers = [Writer(cluster.bootstrap_servers, topic) for topic in TOPICS]
        for writer in writers:
            writer.start()
        try:
            for kind in faults(counts, seed):
                if time.monotonic() - started > limit_s:
                    print(f"the time of {limit_s:.0f} s is over", flush=True)
                    break
                cluster.do_fault(kind, dice.choice(cluster.brokers), dice, lambda: time.sleep(dice.uniform(0.05, 1.0)))
                done[kind] += 1
        finally:
            for writer in writers:
                writer.stop()
        cluster.wait_until_in_sync(60)
        wrong = check(cluster.bootstrap_servers, writers)
        for writer in writers:
            print(f"{writer.topic}: {sum(map(len, writer.acknowledged.values()))} acknowledged", flush=True)
        elections = sum("leader=" in line and "PartitionChange" in line for line in cluster.history())
    print(f"faults: {dict(sorted(done.items()))}; {elections} elections among the last changes")
    print(f"{time.monotonic() - started:.0f} s, load {os.getloadavg()[0]:.1f}, seed {seed}")
    print("\n".join(wrong) or "nothing lost, nothing twice, in order; both readers agree")
    return 1 if wrong else 0


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (("kills", 100), ("pauses", 50), ("cuts", 50), ("rolls", 20), ("power-cuts", 10)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=7_200, help="no new fault after this time")
    given = parser.parse_args()
    counts = Counter(
        {
            "kill": given.kills,
            "pause": given.pauses,
            "cut": given.cuts - given.cuts // 2,
            "one-way cut": given.cuts // 2,
            "roll": given.rolls,
            "power cut": given.power_cuts,
        }
    )
    return run(counts, given.seed, given.limit_s)


if __name__ == "__main__":
    sys.exit(main())
