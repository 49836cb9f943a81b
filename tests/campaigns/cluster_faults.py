"""Breaks an embedded cluster many times under load, and checks that nothing acknowledged is lost or there twice.

`python -m tests.campaigns.cluster_faults --kills 100 --pauses 50 --cuts 50 --rolls 20 --power-cuts 10 --seed 1` draws
the order of the faults from the seed; with `--disks 50` brokers have three log directories, and these fail, too.
Meanwhile kafkaprod (`send`, `send_many`, `send_columns`), confluent-kafka, Apache Kafka's producer (Java, Maven) and
franz-go (Go) send with acks=all; `--writers` chooses. With `--results FILE` and `--limit-s` it goes in pieces: a call
appends what it did and found to the file, and the next call does what is left. All is read back with confluent-kafka,
kafka-python and, if Java writes, Apache Kafka's consumer. Exit code 1: a record is lost, twice or out of order, readers
differ, or the cluster did not recover. Exit code 3: nothing is wrong, and faults are left to do.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.errors import KafkaError
from tests.campaigns.disk_faults import LOG_DIRS, break_disk
from tests.support.cluster.reading import read_with_confluent, read_with_java, read_with_kafka_python
from tests.support.cluster.writers import PARTITIONS, WRITERS, JavaProducer, Writer

UNFINISHED = 3


@dataclass
class Piece:
    """What one call did and found."""

    seed: int
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    elections: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: int = 0
    load: float = 0.0


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


def run(counts: Counter[str], seed: int, limit_s: float, names: Sequence[str], keep: Path | None) -> Piece:
    """Break a cluster until the faults or the time is over, then check; return what was done and found.

    Args:
        counts: Of each kind of fault.
        seed: Of their order.
        limit_s: No fault begins after this time.
        names: Of the writers.
        keep: Where the brokers' files and the cluster's history go if something is wrong.
    """
    dice, done, piece = random.Random(seed), Counter[str](), Piece(seed)
    started = time.monotonic()
    topics, log_dirs = dict.fromkeys(names, PARTITIONS), LOG_DIRS if counts["disk"] else 1
    with EmbeddedCluster(brokers=3, log_dirs=log_dirs, topics=topics, session_timeout_ms=3_000) as cluster:
        writers = [WRITERS[name](cluster.bootstrap_servers) for name in names]
        for writer in writers:
            writer.start()
        try:
            for kind in faults(counts, seed):
                if time.monotonic() - started > limit_s:
                    print(f"the time of {limit_s:.0f} s is over", flush=True)
                    break
                print(f"{time.monotonic() - started:5.0f} s: {kind}", flush=True)
                break_once(cluster, kind, dice)
                done[kind] += 1
        except KafkaError as error:
            piece.wrong.append(f"no recovery from the last fault: {error}")
        finally:
            for writer in writers:
                writer.stop()
        print(f"{time.monotonic() - started:5.0f} s: reading", flush=True)
        try:
            cluster.wait_until_in_sync(60)
            piece.wrong += check(cluster.bootstrap_servers, writers)
        except (KafkaError, AssertionError) as error:
            piece.wrong.append(f"not checked: {error}")
        piece.acknowledged = {writer.topic: sum(map(len, writer.acknowledged.values())) for writer in writers}
        if piece.wrong and keep is not None:
            kept = keep / f"seed-{seed}"
            shutil.copytree(cluster.data_dir, kept, dirs_exist_ok=True)
            (kept / "history").write_text("\n".join(cluster.history()))
            print(f"the files are in {kept}", flush=True)
        piece.elections = sum(": leader " in line for line in cluster.history())
    piece.faults = dict(sorted(done.items()))
    piece.seconds, piece.load = round(time.monotonic() - started), round(os.getloadavg()[0], 1)
    return piece


def break_once(cluster: EmbeddedCluster, kind: str, dice: random.Random) -> None:
    """Do a fault to a broker, or restart all of them in turn; return when all is in sync."""
    brokers = cluster.brokers if kind == "roll" else [dice.choice(cluster.brokers)]
    for broker in brokers:
        if kind == "disk":
            print(f"       {break_disk(cluster, broker, dice)}, broker {broker.id}", flush=True)
            continue
        cluster.do_fault(kind, broker, dice, lambda: time.sleep(dice.uniform(0.05, 1.0)))


def report(pieces: Iterable[Piece]) -> list[str]:
    """Print what pieces add up to; return what is wrong."""
    done, acknowledged, wrong, seconds, count = Counter[str](), Counter[str](), [], 0, 0
    for piece in pieces:
        done.update(piece.faults)
        acknowledged.update(piece.acknowledged)
        wrong += [f"seed {piece.seed}: {text}" for text in piece.wrong]
        seconds += piece.seconds
        count += 1
    print(f"{count} pieces, {seconds} s, faults: {dict(sorted(done.items()))}")
    print(f"{acknowledged.total()} acknowledged: {dict(acknowledged)}")
    print("\n".join(wrong) or "nothing lost, nothing twice, in order; the readers agree")
    return wrong


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (("kills", 100), ("pauses", 50), ("cuts", 50), ("rolls", 20), ("power-cuts", 10), ("disks", 0)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", default=",".join(WRITERS), help="names, with commas: %(default)s")
    parser.add_argument("--limit-s", type=float, default=7_200, help="no new fault after this time")
    parser.add_argument(
        "--results", type=Path, help="a file with a line for each piece; faults in it are not done again"
    )
    parser.add_argument("--keep", type=Path, help="copy the brokers' files into this directory if something is wrong")
    given = parser.parse_args()
    counts = Counter(
        {
            "kill": given.kills,
            "pause": given.pauses,
            "cut": given.cuts - given.cuts // 2,
            "one-way cut": given.cuts // 2,
            "roll": given.rolls,
            "power cut": given.power_cuts,
            "disk": given.disks,
        }
    )
    pieces = []
    if given.results is not None and given.results.exists():
        pieces = [Piece(**json.loads(line)) for line in given.results.read_text().splitlines()]
    for piece in pieces:
        counts -= Counter(piece.faults)
    if counts:
        piece = run(counts, given.seed + len(pieces), given.limit_s, given.writers.split(","), given.keep)
        report([piece])
        pieces.append(piece)
        counts -= Counter(piece.faults)
        if given.results is not None:
            with given.results.open("a") as lines:
                print(json.dumps(asdict(piece)), file=lines)
    if report(pieces):
        return 1
    return UNFINISHED if counts else 0


if __name__ == "__main__":
    sys.exit(main())
