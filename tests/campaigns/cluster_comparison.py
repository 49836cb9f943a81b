"""Runs one script on three nodes of Apache Kafka and on an embedded cluster, and compares what clients see.

`python -m tests.campaigns.cluster_comparison` prints the lines of both side by side where they differ: errors, leaders,
ISR, end offsets, options, groups and transactions, before, while and after a broker is dead. The clients are
confluent-kafka's.
`EXPLAINED` names the differences that are meant to be. Exit code 1: a line differs that is not among them.

Needs Java and Maven, as `tests/kafka` does.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.kafka.cluster import KafkaCluster, wait_until

TIMEOUT_S = 60.0
TOPIC = "compared"
REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]

EXPLAINED = {
    "unclean: alone-0: leader -1 replicas [3] isr [3]": "Apache Kafka 4.1: an eligible leader replica (KIP-966)"
}
"""Lines of the embedded cluster that may differ, by how they begin, and why."""
_LOOKS = 5


@dataclass
class Cluster:
    """Three brokers, numbered from 1, whichever they are."""

    servers: str
    kill: Callable[[int], object]
    stop: Callable[[int], object]
    start: Callable[[int], object]


@contextlib.contextmanager
def apache_kafka() -> Iterator[Cluster]:
    """Run three nodes of Apache Kafka."""
    with KafkaCluster(3, overrides={"auto.create.topics.enable": "false"}) as kafka:

        def start(node_id: int) -> None:
            kafka.start_node(node_id)
            kafka.wait_until_ready()

        yield Cluster(kafka.bootstrap(), kafka.kill9, kafka.stop, start)


@contextlib.contextmanager
def embedded() -> Iterator[Cluster]:
    """Run three embedded brokers with the options that the nodes of Apache Kafka have."""
    with EmbeddedCluster(brokers=3, min_insync_replicas=2, auto_create_topics=False) as cluster:
        yield Cluster(
            cluster.bootstrap_servers,
            lambda node: cluster.broker(node).kill(),
            lambda node: cluster.broker(node).stop(),
            lambda node: cluster.broker(node).start(),
        )


@dataclass
class Script:
    """The steps, and the lines they have written."""

    cluster: Cluster
    lines: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.cluster.servers, "log_level": 0})
        self._step = ""

    def run(self) -> dict[str, list[str]]:
        """Run all steps; return their lines."""
        for step in (
            self.topics,
            self.refusals,
            self.records,
            self.partitions,
            self.options,
            self.transactions,
            self.groups,
            self.a_broker_is_dead,
            self.it_is_back,
            self.a_broker_stops,
            self.unclean,
            self.deletion,
        ):
            self._step = step.__name__
            step()
        return self.lines

    # -- steps ---------------------------------------------------------------------------------------------------------

    def topics(self) -> None:
        """Make topics where the request says, and by numbers."""
        self.note("brokers", sorted(node.id for node in self.result(self.admin.describe_cluster()).nodes))
        self.create(placed(TOPIC, REPLICAS))
        self.create(placed("strict", [[1, 2, 3]], {"min.insync.replicas": "3"}))
        self.create(NewTopic("counted", 6, 2))
        self.await_partitions(TOPIC, lambda found: len(found) == 3)
        self.partitions_of(TOPIC)
        found = self.metadata("counted", 6)
        self.note("counted", len(found), sorted({len(each.replicas) for each in found.values()}))
        self.note("leads of counted", sorted(len([p for p in found.values() if p.leader == n]) for n in (1, 2, 3)))

    def refusals(self) -> None:
        """Try what cannot be done."""
        for topic in (
            NewTopic(TOPIC, 1, 1),
            NewTopic("wide", 1, 4),
            NewTopic("none", 0, 1),
            NewTopic("factor", 1, 0),
            NewTopic("bad name!", 1, 1),
            NewTopic("...", 1, 1),
            NewTopic("option", 1, 1, config={"retention.ms": "long"}),
            NewTopic("no-such-option", 1, 1, config={"no.such.option": "1"}),
            placed("twice", [[1, 1]]),
            placed("uneven", [[1, 2], [1]]),
            placed("unknown", [[9]]),
        ):
            self.create(topic)
        for grown in (
            NewPartitions(TOPIC, 3),
            NewPartitions(TOPIC, 2),
            NewPartitions(TOPIC, 5, [[1, 2, 3]]),
            NewPartitions(TOPIC, 4, [[1, 2]]),
            NewPartitions(TOPIC, 4, [[1, 1, 2]]),
            NewPartitions(TOPIC, 4, [[1, 2, 9]]),
            NewPartitions("absent", 4),
        ):
            self.grow(grown)
        self.note("delete absent", self.outcome(self.admin.delete_topics(["absent"])["absent"]))
        described = self.admin.describe_topics(TopicCollection(["absent"]))["absent"]
        self.note("describe absent", self.outcome(described))
        self.note("produce to absent", self.produce("absent", 0, 1))
        self.note("produce to partition 9", self.produce(TOPIC, 9, 1))
        self.note("too large", self.produce(TOPIC, 0, 1, size=2_000_000))

    def records(self) -> None:
        """Write, and look where it is."""
        for partition, count in enumerate((10, 20, 30)):
            self.note("produced", self.produce(TOPIC, partition, count))
        for partition in range(3):
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()):
                self.note("offset", partition, type(spec).__name__, self.offset(TOPIC, partition, spec))
            self.note("for a late time", self.offset(TOPIC, partition, OffsetSpec.for_timestamp(1 << 50)))
        deleted = self.admin.delete_records([TopicPartition(TOPIC, 2, 12)])
        self.note("delete below 12", [self.outcome(each, lambda low: low.low_watermark) for each in deleted.values()])
        refused = self.admin.delete_records([TopicPartition(TOPIC, 2, 99)])
        self.note("delete below 99", [self.outcome(each) for each in refused.values()])
        self.note("earliest", self.offset(TOPIC, 2, OffsetSpec.earliest()))
        self.note("read", self.read(TOPIC, 3))

    def partitions(self) -> None:
        """Add partitions where the request says."""
        self.grow(NewPartitions(TOPIC, 5, [[3, 2, 1], [1, 3, 2]]))
        self.await_partitions(TOPIC, lambda found: len(found) == 5)
        self.partitions_of(TOPIC)

    def options(self) -> None:
        """Change options, and show them."""
        for option, value in (("retention.ms", "86400000"), ("min.insync.replicas", "1"), ("cleanup.policy", "wrong")):
            entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, "counted", incremental_configs=[entry])
            outcome = self.outcome(self.admin.incremental_alter_configs([resource])[resource])
            self.note("set", option, value, outcome)
        asked = ConfigResource(ResourceType.TOPIC, "counted")
        options = ("retention.ms", "min.insync.replicas", "cleanup.policy", "max.message.bytes")
        wait_until(lambda: self.described(asked, "retention.ms") == "86400000", TIMEOUT_S, "the option")
        for option in options:
            self.note("option", option, self.described(asked, option))

    def transactions(self) -> None:
        """Commit one, abort one; a later producer with the id fences the earlier."""
        self.create(placed("transactional", [[2, 3, 1]]))
        self.await_partitions("transactional", lambda found: len(found) == 1)
        first = self.transactional()
        for ends in (first.commit_transaction, first.abort_transaction):
            first.begin_transaction()
            for _ in range(3):
                first.produce("transactional", b"value", partition=0)
            first.flush(TIMEOUT_S)
            ends(TIMEOUT_S)
        second = self.transactional()
        first.begin_transaction()
        first.produce("transactional", b"fenced", partition=0)
        try:
            first.commit_transaction(TIMEOUT_S)
            self.note("fenced", "no error")
        except KafkaException as error:
            self.note("fenced", name_of(error), error.args[0].fatal())
        second.begin_transaction()
        second.produce("transactional", b"value", partition=0)
        second.commit_transaction(TIMEOUT_S)
        latest, committed = OffsetSpec.latest(), IsolationLevel.READ_COMMITTED
        wait_until(lambda: self.offset("transactional", 0, latest, committed) == 10, TIMEOUT_S, "the last marker")
        self.note("end", self.offset("transactional", 0, latest))
        for name in ("read_uncommitted", "read_committed"):
            self.note(name, self.read("transactional", 1, isolation=name))

    def groups(self) -> None:
        """Commit offsets of a group, and show them."""
        self.commit("group", 0, 7)
        self.note("committed", self.committed("group"))
        listed = self.result(self.admin.list_consumer_groups())
        self.note("groups", sorted(each.group_id for each in listed.valid if each.group_id == "group"))
        described = self.result(self.admin.describe_consumer_groups(["group"])["group"])
        self.note("state", described.state.name, len(described.members))
        self.note("delete absent", self.outcome(self.admin.delete_consumer_groups(["absent"])["absent"]))

    def a_broker_is_dead(self) -> None:
        """Kill broker 1; the others lead, min.insync.replicas counts."""
        self.cluster.kill(1)
        self.await_partitions(TOPIC, lambda found: all(set(each.isrs) <= {2, 3} for each in found.values()))
        self.partitions_of(TOPIC)
        self.partitions_of("strict")
        for topic, acks in ((TOPIC, "all"), ("strict", "all"), ("strict", "1")):
            self.note("produced", topic, acks, self.produce(topic, 0, 5, acks=acks))
        self.note("end", self.offset(TOPIC, 0, OffsetSpec.latest()), self.offset("strict", 0, OffsetSpec.latest()))
        self.create(placed("while-dead", [[1, 2, 3], [2, 3, 1]]))
        self.create(placed("all-dead", [[1]]))
        self.grow(NewPartitions(TOPIC, 6, [[1, 2, 3]]))
        self.await_partitions(TOPIC, lambda found: len(found) == 6)
        self.await_partitions("while-dead", lambda found: len(found) == 2)
        self.partitions_of("while-dead")
        self.note("added", self.described_partition(TOPIC, 5))
        self.note("preferred", self.elect(ElectionType.PREFERRED, TOPIC, 0))
        self.commit("group", 1, 8)
        self.note("committed", self.committed("group"))

    def it_is_back(self) -> None:
        """Start it again: it joins the ISR, and leads when it is preferred."""
        self.cluster.start(1)
        self.await_partitions(TOPIC, lambda found: all(len(each.isrs) == 3 for each in found.values()))
        for partition in (0, 4):
            self.note("before", self.described_partition(TOPIC, partition))
            self.note("preferred", self.elect(ElectionType.PREFERRED, TOPIC, partition))
            self.await_partitions(TOPIC, lambda found: found[partition].leader == 1)  # noqa: B023
            self.note("after", self.described_partition(TOPIC, partition))
            self.note("again", self.elect(ElectionType.PREFERRED, TOPIC, partition))
        self.note("unclean", self.elect(ElectionType.UNCLEAN, TOPIC, 0))
        self.note("absent", self.elect(ElectionType.PREFERRED, "absent", 0))
        self.note("produced", self.produce("strict", 0, 5))
        self.note("read", self.read(TOPIC, 3), self.read("strict", 1))

    def a_broker_stops(self) -> None:
        """Stop broker 2: its leaderships move first."""
        self.cluster.stop(2)
        self.await_partitions(TOPIC, lambda found: all(each.leader != 2 for each in found.values()))
        self.partitions_of(TOPIC)
        self.note("produced", self.produce(TOPIC, 1, 5))
        self.note("committed", self.committed("group"))
        self.cluster.start(2)
        self.await_partitions(TOPIC, lambda found: all(len(each.isrs) == 3 for each in found.values()))
        self.partitions_of(TOPIC)

    def unclean(self) -> None:
        """Kill a partition's only replica."""
        self.create(placed("alone", [[3]], {"min.insync.replicas": "1"}))
        self.await_partitions("alone", lambda found: len(found) == 1)
        self.note("produced", self.produce("alone", 0, 3))
        self.cluster.kill(3)
        self.await_partitions("alone", lambda found: found[0].leader == -1)
        self.partitions_of("alone")
        self.note("produced", self.produce("alone", 0, 1))
        self.note("preferred", self.elect(ElectionType.PREFERRED, "alone", 0))
        self.note("unclean", self.elect(ElectionType.UNCLEAN, "alone", 0))
        self.cluster.start(3)
        self.await_partitions("alone", lambda found: found[0].leader == 3)
        self.partitions_of("alone")
        self.note("end", self.offset("alone", 0, OffsetSpec.latest()))

    def deletion(self) -> None:
        """Delete a topic and a group."""
        self.note("delete", self.outcome(self.admin.delete_topics(["counted"])["counted"]))
        names: list[str] = []  # one listing: the nodes learn of the deletion one after the other

        def is_gone() -> bool:
            names[:] = sorted(name for name in self.admin.list_topics(timeout=10).topics if name[0] != "_")
            return "counted" not in names

        wait_until(is_gone, TIMEOUT_S, "the deletion")
        self.note("topics", names)
        self.note("delete group", self.outcome(self.fresh_admin().delete_consumer_groups(["group"])["group"]))

    # -- what they are made of -----------------------------------------------------------------------------------------

    def note(self, *parts: object) -> None:
        """Write a line of the current step."""
        self.lines.setdefault(self._step, []).append(" ".join(map(str, parts)))

    def result(self, future: Future[Any]) -> Any:
        """Return what an admin call brings."""
        return future.result(TIMEOUT_S)

    def outcome(self, future: Future[Any], show: Callable[[Any], object] = lambda _: "done") -> object:
        """Return what to show of an admin call's result, or the name of its error."""
        try:
            return show(self.result(future))
        except KafkaException as error:
            return name_of(error)

    def create(self, topic: NewTopic) -> None:
        """Create a topic, and note the outcome; clients of all brokers may know it a little later."""
        self.note("create", topic.topic, self.outcome(self.admin.create_topics([topic])[topic.topic]))

    def grow(self, wanted: NewPartitions) -> None:
        """Add partitions, and note the outcome."""
        outcome = self.outcome(self.admin.create_partitions([wanted])[wanted.topic])
        self.note("grow", wanted.topic, wanted.new_total_count, wanted.replica_assignment, outcome)

    def metadata(self, topic: str, count: int) -> dict[int, Any]:
        """Return a topic's partitions, as soon as there are so many."""
        self.await_partitions(topic, lambda found: len(found) == count)
        return dict(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def await_partitions(self, topic: str, condition: Callable[[dict[int, Any]], bool]) -> None:
        """Wait until a topic's partitions are as they should be: some times in a row, since any broker may answer."""

        def is_met() -> bool:
            looks = (self.admin.list_topics(topic, timeout=10).topics[topic].partitions for _ in range(_LOOKS))
            return all(found and condition(found) for found in looks)

        wait_until(is_met, TIMEOUT_S, f"partitions of {topic} in step {self._step}")

    def partitions_of(self, topic: str) -> None:
        """Note leader, replicas and ISR of each partition."""
        for index in sorted(self.admin.list_topics(topic, timeout=10).topics[topic].partitions):
            self.note(self.described_partition(topic, index))

    def described_partition(self, topic: str, index: int) -> str:
        """Return leader, replicas and ISR."""
        found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions[index]
        return f"{topic}-{index}: leader {found.leader} replicas {found.replicas} isr {sorted(found.isrs)}"

    def described(self, resource: ConfigResource, option: str) -> str | None:
        """Return the value of an option."""
        value: str | None = self.result(self.admin.describe_configs([resource])[resource])[option].value
        return value

    def produce(self, topic: str, partition: int, count: int, *, acks: str = "all", size: int = 10) -> list[object]:
        """Write records without retries; return the distinct outcomes: errors, or the last offset."""
        outcomes: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.servers,
                "acks": acks,
                "message.timeout.ms": 15_000,
                "message.send.max.retries": 0,
                "message.max.bytes": 3_000_000,
                "topic.metadata.propagation.max.ms": 0,
                "log_level": 0,
            }
        )
        for _ in range(count):
            try:
                producer.produce(
                    topic, b"x" * size, partition=partition, on_delivery=lambda *done: outcomes.append(done)
                )
            except KafkaException as error:
                outcomes.append((error.args[0], None))
            producer.flush(TIMEOUT_S)
        errors = sorted({error.name() for error, _ in outcomes if error is not None})
        return [*errors, *(f"to {message.offset()}" for error, message in outcomes[-1:] if error is None)]

    def offset(
        self, topic: str, partition: int, spec: Any, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> object:
        """Return an offset, or the name of the error."""
        asked = TopicPartition(topic, partition)
        return self.outcome(
            self.admin.list_offsets({asked: spec}, isolation_level=level)[asked], lambda found: found.offset
        )

    def read(self, topic: str, partitions: int, isolation: str = "read_committed") -> list[tuple[int, int, int]]:
        """Return first offset, last offset and number of the records of each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        found: dict[int, list[int]] = {index: [] for index in range(partitions)}
        ended: set[int] = set()
        try:
            consumer.assign([TopicPartition(topic, index, 0) for index in found])
            while len(ended) < partitions:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    break
                error = message.error()
                if error is None:
                    found[message.partition() or 0].append(message.offset() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
        finally:
            consumer.close()
        return [(min(each, default=-1), max(each, default=-1), len(each)) for each in found.values()]

    def transactional(self) -> Producer:
        """Return a producer with the transactional id that all have."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.servers,
                "transactional.id": "id",
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        return producer

    def commit(self, group: str, partition: int, offset: int) -> None:
        """Commit an offset from outside of the group."""
        consumer = Consumer({"bootstrap.servers": self.cluster.servers, "group.id": group, "log_level": 0})
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
        finally:
            consumer.close()

    def fresh_admin(self) -> AdminClient:
        """Return a client that remembers no coordinator: the other one would ask one that is dead."""
        self._fresh = AdminClient({"bootstrap.servers": self.cluster.servers, "log_level": 0})  # kept for its futures
        return self._fresh

    def committed(self, group: str) -> list[tuple[int, int]]:
        """Return a group's offsets by partition."""
        asked = ConsumerGroupTopicPartitions(group)
        found = self.result(self.fresh_admin().list_consumer_group_offsets([asked])[group])
        return sorted((each.partition, each.offset) for each in found.topic_partitions)

    def elect(self, kind: ElectionType, topic: str, partition: int) -> list[str]:
        """Ask for an election; return its errors."""
        try:
            outcomes = self.result(self.admin.elect_leaders(kind, [TopicPartition(topic, partition)]))
        except KafkaException as error:
            return [name_of(error)]
        return [str(None if error is None else error.name()) for error in outcomes.values()]


def placed(name: str, replicas: list[list[int]], config: dict[str, str] | None = None) -> NewTopic:
    """Return a topic whose replicas are given."""
    return NewTopic(name, len(replicas), replica_assignment=replicas, config=config or {})


def name_of(error: KafkaException) -> str:
    """Return the name of an error's code."""
    name: str = error.args[0].name()
    return name


def differences(kafka: dict[str, list[str]], ours: dict[str, list[str]]) -> list[str]:
    """Return the lines that differ, step by step; in brackets those that are explained."""
    found = []
    for step, expected in kafka.items():
        for theirs, own in zip_longest(expected, ours.get(step, [])):
            if theirs != own:
                why = next((why for begin, why in EXPLAINED.items() if f"{step}: {own}".startswith(begin)), None)
                text = f"{step}: Apache Kafka: {theirs} | embedded: {own}"
                found.append(text if why is None else f"({text}: {why})")
    return found


def zip_longest(first: list[str], second: list[str]) -> Iterator[tuple[str | None, str | None]]:
    """Return pairs of lines, None where one list is over."""
    for index in range(max(len(first), len(second))):
        yield (
            first[index] if index < len(first) else None,
            second[index] if index < len(second) else None,
        )


def compare() -> tuple[int, list[str]]:
    """Run the script on both; return the number of lines, and `differences`."""
    with embedded() as cluster:
        ours = Script(cluster).run()
    with apache_kafka() as cluster:
        kafka = Script(cluster).run()
    return sum(map(len, kafka.values())), differences(kafka, ours)


def main() -> int:
    """Print what differs, or with `--embedded` what clients see of the embedded cluster."""
    if "--embedded" in sys.argv:
        with embedded() as cluster:
            for step, lines in Script(cluster).run().items():
                print("\n".join(f"{step}: {line}" for line in lines))
        return 0
    line_count, found = compare()
    print("\n".join(found))
    open_count = sum(not text.startswith("(") for text in found)
    print(f"{line_count} lines, {len(found)} differ, {open_count} of them unexplained")
    return 1 if open_count else 0


if __name__ == "__main__":
    sys.exit(main())
