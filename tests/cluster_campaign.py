"""Breaks an embedded cluster many times under load, and checks that nothing acknowledged is lost or there twice.

`python -m tests.cluster_campaign --kills 100 --pauses 50 --cuts 50 --rolls 20 --power-cuts 10 --seed 1` draws the order
of the faults from the seed. Meanwhile kafkaprod (`send`, `send_many`, `send_columns`), confluent-kafka, Apache Kafka's
producer (Java, Maven) and franz-go (Go) send with acks=all; `--writers` chooses. All is read back with confluent-kafka,
kafka-python and, if Java writes, Apache Kafka's consumer. Exit code 1: a record is lost, twice or out of order, readers
differ, or the cluster did not recover.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.support.cluster.reading import read_with_confluent, read_with_java, read_with_kafka_python
from tests.support.cluster.writers import PARTITIONS, WRITERS, JavaProducer, Writer


def faults(counts: Counter[str], seed: int) -> list[str]:
    """Return the faults in the order that a seed draws."""
    kinds = list(counts.elements())
    random.Random(seed).shuffle(kinds)
    return kinds


def check(servers: str, writers: Sequence[Writer]) -> list[str]:
    """Read everything back; return what is wrong."""
    wrong = []
    has_java = any(isinstance(writer, JavaProducer) for writer in writers)
    for writer in writers:
        read = read_with_confluent(servers, writer.topic, PARTITIONS)
        if read != read_with_kafka_python(servers, writer.topic, PARTITIONS):
            wrong.append(f"{writer.topic}: confluent-kafka and kafka-python read differently")
        if has_java and read != read_with_java(servers, writer.topic, PARTITIONS, sum(map(len, read.values()))):
            wrong.append(f"{writer.topic}: confluent-kafka and Apache Kafka's consumer read differently")
        for partition, values in read.items():
            lost = len(set(writer.acknowledged[partition]) - set(values))
            twice = len(values) - len(set(values))
            if lost or twice:
                wrong.append(f"{writer.topic}-{partition}: {lost} lost, {twice} twice")
            if [int(value) for value in values] != sorted({int(value) for value in values}):
                wrong.append(f"{writer.topic}-{partition}: out of order")
        wrong += [f"{writer.topic} failed: {reason}" for reason in writer.failed[:3]]
        if not any(writer.acknowledged.values()):
            wrong.append(f"{writer.topic}: nothing was acknowledged")
    return wrong


def run(counts: Counter[str], seed: int, limit_s: float, names: Sequence[str]) -> int:
    """Run a campaign; return the exit code."""
    dice, done = random.Random(seed), Counter[str]()
    started = time.monotonic()
    with EmbeddedCluster(brokers=3, topics=dict.fromkeys(names, PARTITIONS), session_timeout_ms=3_000) as cluster:
        writers = [WRITERS[name](cluster.bootstrap_servers) for name in names]
        for writer in writers:
            writer.start()
        try:
            for kind in faults(counts, seed):
                if time.monotonic() - started > limit_s:
                    print(f"the time of {limit_s:.0f} s is over", flush=True)
                    break
                print(f"{time.monotonic() - started:5.0f} s: {kind}", flush=True)
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
    print("\n".join(wrong) or "nothing lost, nothing twice, in order; the readers agree")
    return 1 if wrong else 0


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (("kills", 100), ("pauses", 50), ("cuts", 50), ("rolls", 20), ("power-cuts", 10)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", default=",".join(WRITERS), help="names, with commas: %(default)s")
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
    return run(counts, given.seed, given.limit_s, given.writers.split(","))


if __name__ == "__main__":
    sys.exit(main())
