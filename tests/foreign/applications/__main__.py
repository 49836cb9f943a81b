"""Other people's exactly-once programs at the embedded broker: `python -m tests.foreign.applications streams`.

    download -> leave the network -> brokers -> the application copies topic `in` to `out`, in two processes
    -> a third of the rows are there: the leader of out-0 is killed, and started again
    -> two thirds: one process of the application is killed, and another started -> all rows: compare

`streams` (Kafka Streams, exactly_once_v2, with counts of keys), `mirrormaker` (MirrorMaker 2 with exactly-once support,
from and to the same brokers), and what copies in transactions with offsets: `kafkajs`, `platformatic`, `rdkafka`, and
others that `--help` lists. They run with three brokers, or with `--alone` with one. Exit status 0 if each row is in the
copy once for readers of committed records (of programs that promise less: at least once, and few twice), and the counts
of each key go up by one.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.foreign import network
from tests.foreign.applications.prepared import APPLICATIONS, ROWS, Application

KEYS = 20
PARTITIONS = 4
LIMIT_S = 600.0
QUIET_S = 8.0  # without another record before what is there is compared


class Brokers(Protocol):
    """One broker or three."""

    servers: str
    count: int

    def kill_leader(self, topic: str) -> None:
        """Kill -9 the leader of a topic's first partition, and start it again."""


class Alone:
    """One broker."""

    count = 1

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.servers = broker.bootstrap_servers

    def kill_leader(self, topic: str) -> None:
        """See Brokers."""
        self._broker.kill()
        self._broker.start()


class Cluster:
    """Three brokers."""

    count = 3

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.servers = cluster.bootstrap_servers

    def kill_leader(self, topic: str) -> None:
        """See Brokers."""
        dead = self._cluster.leader(topic, 0)
        dead.kill()
        self._cluster.wait_for(lambda view: view.leader(topic, 0) not in (None, dead.id))
        dead.start()


@contextlib.contextmanager
def running_brokers(is_alone: bool, directory: Path) -> Iterator[Brokers]:
    """Run brokers that keep their data when they die."""
    if is_alone:
        with EmbeddedBroker(data_dir=directory / "data") as broker:
            yield Alone(broker)
    else:
        with EmbeddedCluster(3, data_dir=directory / "data", min_insync_replicas=2) as cluster:
            yield Cluster(cluster)


def make_topics(servers: str, names: Sequence[str], replicas: int) -> None:
    """Make the topics."""
    new = [NewTopic(name, PARTITIONS, replicas) for name in names]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(new).values():
        made.result(60)


def send_rows(servers: str) -> None:
    """Send the rows to `in`."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for row in range(ROWS):
        producer.produce("in", str(row), f"key-{row % KEYS}")
    assert producer.flush(60) == 0


class Reader:
    """Reads topics from their beginning, committed records only."""

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for name in topics for n in range(PARTITIONS)])
        self.values: dict[str, list[str]] = defaultdict(list)
        self.by_key: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def read(self) -> bool:
        """Read some; return whether there were any."""
        found = [message for message in self._consumer.consume(1000, 0.2) if message.error() is None]
        for message in found:
            key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
            topic = message.topic() or ""
            self.values[topic].append(value)
            self.by_key[topic][key].append(value)
        return bool(found)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class Instances:
    """The processes of an application."""

    def __init__(self, application: Application, brokers: Brokers, directory: Path) -> None:
        self.application = application
        self._brokers = brokers
        self._directory = directory
        self.running: list[Popen[bytes]] = []
        self._count = 0

    def start(self) -> None:
        """Start one more."""
        self._count += 1
        state = self._directory / f"instance-{self._count}"
        state.mkdir()
        command = self.application.command(self._brokers.servers, state, self._brokers.count)
        log = (state / "log").open("wb")
        self.running.append(Popen(command, stdin=PIPE, stdout=log, stderr=log, cwd=self.application.directory))

    def kill_first(self) -> None:
        """Kill -9 the oldest."""
        process = self.running.pop(0)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all of them."""
        for process in self.running:
            assert process.stdin is not None
            process.stdin.close()
            if not self.application.ends_with_stdin:
                process.terminate()
        for process in self.running:
            process.wait(60)

    def logs(self) -> str:
        """Return the ends of what they printed."""
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self._directory.glob("*/log")))


def ends(servers: str, topics: Sequence[str]) -> str:
    """Say where the logs end for both kinds of readers, what groups have committed, and which transactions are open."""
    admin = AdminClient({"bootstrap.servers": servers})
    lines = []
    for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        wanted = {TopicPartition(topic, n): OffsetSpec.latest() for topic in topics for n in range(PARTITIONS)}
        found = admin.list_offsets(wanted, isolation_level=level)
        lines += [
            f"{level.name} {place.topic}-{place.partition} {each.result().offset}" for place, each in found.items()
        ]
    for group in admin.list_consumer_groups().result().valid:
        asked = [ConsumerGroupTopicPartitions(group.group_id)]
        (committed,) = admin.list_consumer_group_offsets(asked).values()
        lines += [f"{group.group_id}: {place}" for place in committed.result().topic_partitions]
    command = [sys.executable, "-m", "kafkaprod", "transactions", "list", "-b", servers]
    lines.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return "\n".join(lines)


def copy_through_deaths(reader: Reader, out: str, brokers: Brokers, instances: Instances) -> None:
    """Read until all rows are there and nothing more comes, and let things die on the way.

    Raises:
        TimeoutError: It takes too long.
    """
    acts: list[tuple[int, Sequence[Callable[[], None]]]] = [
        (2 * ROWS // 3, (instances.kill_first, instances.start)),
        (ROWS // 3, (lambda: brokers.kill_leader(out),)),
    ]
    deadline = time.monotonic() + LIMIT_S
    last = time.monotonic()
    while len(set(reader.values[out])) < ROWS or time.monotonic() - last < QUIET_S:
        if reader.read():
            last = time.monotonic()
        if acts and len(reader.values[out]) >= acts[-1][0]:
            for act in acts.pop()[1]:
                act()
        if time.monotonic() > deadline:
            known = f"{len(reader.values[out])} rows after {LIMIT_S:.0f} s\n{instances.logs()}"
            raise TimeoutError(f"{known}\n{ends(brokers.servers, instances.application.topics)}")


def mistakes(reader: Reader, application: Application) -> list[str]:
    """Say what is wrong in the topics."""
    counts = Counter(reader.values[application.out])
    repeats = counts.total() - len(counts)
    most = 1 + repeats if repeats <= application.may_repeat else 1
    found = [f"{row} is there {counts[str(row)]} times" for row in range(ROWS) if not 1 <= counts[str(row)] <= most]
    found += [f"{value!r} was never sent" for value in counts if not value.isdigit() or int(value) >= ROWS]
    if application.has_counts:
        expected = [str(n) for n in range(1, ROWS // KEYS + 1)]
        for key in (f"key-{n}" for n in range(KEYS)):
            if (seen := reader.by_key["counts"][key]) != expected:
                found.append(f"counts of {key}: {len(seen)}, {seen[:3]} to {seen[-3:]}, not 1 to {len(expected)}")
    return found


def main() -> int:
    """Run one application, and compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign.applications", description=__doc__.splitlines()[0])
    parser.add_argument("application", choices=sorted(APPLICATIONS))
    parser.add_argument("--alone", action="store_true", help="one broker, not three")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where all files are, and stay")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foreign-")))
        directory.mkdir(parents=True, exist_ok=True)
        application = APPLICATIONS[options.application](directory)
        network.leave()
        begun = time.monotonic()
        with running_brokers(options.alone, directory) as brokers:
            make_topics(brokers.servers, application.topics, brokers.count)
            if "in" in application.topics:
                send_rows(brokers.servers)
            reader = Reader(brokers.servers, [application.out, *(["counts"] if application.has_counts else [])])
            instances = Instances(application, brokers, directory)
            try:
                for _ in range(application.instances):
                    instances.start()
                copy_through_deaths(reader, application.out, brokers, instances)
            finally:
                instances.stop()
                reader.close()
        found = mistakes(reader, application)
        copied = reader.values[application.out]
        print(f"{application.name}: {len(set(copied))} of {ROWS} rows, {len(copied) - len(set(copied))} again,"
              f" {len(found)} mistakes, {time.monotonic() - begun:.0f} s")  # fmt: skip
        for line in found[:20]:
            print(f"  {line}")
        return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
