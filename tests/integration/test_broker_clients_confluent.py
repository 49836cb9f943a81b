"""confluent-kafka (librdkafka) as a real client of the embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.server.router import announced_versions
from kafkaprod.protocol.api_keys import ApiKey
from tests.support.broker.fixtures_broker import wait_until

OpenConsumer = Callable[..., ConfluentConsumer]

# The first version of each API that brokers of today still take; of Produce the first with this record format.
OLDEST = {api: 3 if api is ApiKey.PRODUCE else low for api, (low, _) in announced_versions().items()}


@pytest.fixture(scope="module")
def old_broker() -> Iterator[EmbeddedBroker]:
    """Announces the oldest versions, and closes connections that ask for a later one."""
    with EmbeddedBroker(auto_create_topics=True, num_partitions=3, max_versions=OLDEST) as broker:
        yield broker


@pytest.fixture
def broker_of(request: pytest.FixtureRequest) -> Callable[[str], EmbeddedBroker]:
    """The broker that speaks the newest or the oldest versions."""
    names = {"newest": "embedded_broker", "oldest": "old_broker"}
    return lambda protocol: request.getfixturevalue(names[protocol])


@pytest.fixture
def open_consumer(embedded_broker: EmbeddedBroker, topic_name: str) -> Iterator[OpenConsumer]:
    """Open members of one group; all are closed at the end."""
    consumers: list[ConfluentConsumer] = []

    def open_one(**options: Any) -> ConfluentConsumer:
        given = {
            "bootstrap.servers": embedded_broker.bootstrap_servers,
            "group.id": f"group-of-{topic_name}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        consumer = ConfluentConsumer({name: value for name, value in given.items() if value is not None})
        consumer.subscribe([topic_name])
        consumers.append(consumer)
        return consumer

    yield open_one
    for consumer in consumers:
        consumer.close()


def produce(broker: EmbeddedBroker, topic: str, values: range, **options: Any) -> list[int]:
    """Produce values to partition value % 3; return the offsets."""
    producer = ConfluentProducer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    offsets: list[int] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % 3, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    return offsets


def collect(consumers: list[ConfluentConsumer], values: list[int]) -> None:
    """Poll each consumer until it has nothing more now."""
    for consumer in consumers:
        while (message := consumer.poll(0.1)) is not None:
            if message.error() is None:
                values.append(int(message.value() or b""))


def collected(consumers: list[ConfluentConsumer], values: list[int]) -> bool:
    """Collect; return True."""
    collect(consumers, values)
    return True


def share_sizes(consumers: list[ConfluentConsumer]) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


def has_read_up_to(member: ConfluentConsumer, offset: int) -> bool:
    """True when a commit of the member would cover each of its partitions up to the offset.

    What an earlier owner has read does not count: a position is not handed over in a rebalance.
    """
    return all(place.offset == offset for place in member.position(member.assignment()))


@pytest.mark.parametrize(
    ("protocol", "strategy"), [("newest", "range"), ("newest", "cooperative-sticky"), ("oldest", "range")]
)
def test_three_confluent_members_share_the_partitions_rebalance_and_resume(
    broker_of: Callable[[str], EmbeddedBroker],
    topic_name: str,
    open_consumer: OpenConsumer,
    protocol: str,
    strategy: str,
) -> None:
    broker = broker_of(protocol)
    options = {"partition_assignment_strategy": strategy, "bootstrap_servers": broker.bootstrap_servers}
    produce(broker, topic_name, range(300))
    members = [open_consumer(**options) for _ in range(3)]
    seen: list[int] = []

    def all_is_read_and_shared() -> bool:
        collect(members, seen)
        return share_sizes(members) == [1, 1, 1] and all(has_read_up_to(member, 100) for member in members)

    wait_until(all_is_read_and_shared, "three members with a partition each, all of it read")
    assert set(seen) == set(range(300))
    for member in members:
        member.commit(asynchronous=False)

    members.pop().close()

    def two_have_it_all() -> bool:
        collect(members, [])
        return share_sizes(members) == [1, 2]

    wait_until(two_have_it_all, "two members take over the third's partition")
    for member in members:
        member.close()

    produce(broker, topic_name, range(300, 330))
    resumed = open_consumer(**options)
    later: list[int] = []

    def new_ones_are_read() -> bool:
        collect([resumed], later)
        return len(later) >= 30

    wait_until(new_ones_are_read, "the records produced since the commit")
    assert sorted(later) == list(range(300, 330))
    partitions = [TopicPartition(topic_name, index) for index in range(3)]
    assert {committed.offset for committed in resumed.committed(partitions, timeout=30)} == {100}


@pytest.fixture
def consumer_protocol_broker() -> Iterator[EmbeddedBroker]:
    options = {"group.consumer.min.heartbeat.interval.ms": 200, "group.consumer.heartbeat.interval.ms": 200}
    with EmbeddedBroker(auto_create_topics=True, num_partitions=3, options=options) as broker:
        yield broker


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_confluent_members_of_the_consumer_protocol_share_revoke_and_resume(
    consumer_protocol_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer, assignor: str
) -> None:
    broker = consumer_protocol_broker
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_protocol": "consumer"}
    options |= {"group_remote_assignor": assignor, "heartbeat_interval_ms": None}
    produce(broker, topic_name, range(300))
    members = [open_consumer(**options) for _ in range(2)]
    members.append(open_consumer(**options, group_instance_id="static"))
    seen: list[int] = []

    def all_is_read_and_shared() -> bool:
        collect(members, seen)
        return share_sizes(members) == [1, 1, 1] and all(has_read_up_to(member, 100) for member in members)

    wait_until(all_is_read_and_shared, "three members with a partition each, all of it read")
    assert set(seen) == set(range(300))
    for member in members:
        member.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    group_id = f"group-of-{topic_name}"
    described = admin.describe_consumer_groups([group_id])[group_id].result(timeout=30)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert described.partition_assignor == assignor
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [1, 1, 1]

    members.pop(0).close()

    def two_have_it_all() -> bool:
        collect(members, [])
        return share_sizes(members) == [1, 2]

    wait_until(two_have_it_all, "two members take over the third's partition")
    assert sum(partition.offset for member in members for partition in member.committed(member.assignment())) == 300


def test_confluent_subscribes_the_consumer_protocol_by_pattern(
    consumer_protocol_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    broker = consumer_protocol_broker
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_protocol": "consumer"}
    member = open_consumer(**options, heartbeat_interval_ms=None)
    member.subscribe([f"^{topic_name}-.*"])
    for suffix in ("a", "b"):  # the second one is made after the subscription
        produce(broker, f"{topic_name}-{suffix}", range(9))
    wait_until(lambda: collected([member], []) and len(member.assignment()) == 6, "the partitions of both topics")


@pytest.mark.parametrize("protocol", ["newest", "oldest"])
def test_idempotent_confluent_producer_gets_dense_offsets(
    broker_of: Callable[[str], EmbeddedBroker], topic_name: str, protocol: str
) -> None:
    offsets = produce(broker_of(protocol), topic_name, range(300), enable_idempotence=True, compression_type="lz4")
    assert sorted(offsets) == sorted(list(range(100)) * 3)


def test_static_confluent_member_comes_back_without_a_rebalance(
    embedded_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    produce(embedded_broker, topic_name, range(3))
    first = open_consumer(group_instance_id="one")
    other = open_consumer(group_instance_id="two")
    wait_until(lambda: collected([first, other], []) and share_sizes([first, other]) == [1, 2], "both have partitions")
    before = sorted(first.assignment(), key=str)
    first.close()
    revoked: list[object] = []
    other.unsubscribe()
    other.subscribe([topic_name], on_revoke=lambda _, partitions: revoked.extend(partitions))
    again = open_consumer(group_instance_id="one")
    wait_until(lambda: collected([again, other], []) and share_sizes([again, other]) == [1, 2], "both have partitions")
    assert sorted(again.assignment(), key=str) == before


def test_confluent_administers_topics_configs_groups_and_offsets(
    embedded_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    admin = AdminClient({"bootstrap.servers": embedded_broker.bootstrap_servers})
    created = admin.create_topics([NewTopic(topic_name, 2, 1, config={"retention.ms": "86400000"})])
    created[topic_name].result(timeout=60)
    admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(timeout=60)
    assert len(admin.list_topics(topic_name, timeout=60).topics[topic_name].partitions) == 3

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic_name)
    config = admin.describe_configs([resource])[resource].result(timeout=60)
    assert config["retention.ms"].value == "86400000"

    produce(embedded_broker, topic_name, range(30))
    consumer = open_consumer()
    seen: list[int] = []
    wait_until(lambda: collected([consumer], seen) and len(seen) == 30, "all records")
    consumer.commit(asynchronous=False)
    group = f"group-of-{topic_name}"
    described = admin.describe_consumer_groups([group])[group].result(timeout=60)
    assert (described.state.name, len(described.members)) == ("STABLE", 1)
    listed = admin.list_consumer_groups().result(timeout=60)
    assert group in {entry.group_id for entry in listed.valid}
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(timeout=60)
    assert {partition.offset for partition in committed.topic_partitions} == {10}
    consumer.close()

    deleted = admin.delete_records([TopicPartition(topic_name, 0, 5)])
    assert [result.result(timeout=60).low_watermark for result in deleted.values()] == [5]
    admin.delete_consumer_groups([group])[group].result(timeout=60)
    admin.delete_topics([topic_name])[topic_name].result(timeout=60)


def test_confluent_finds_offsets_by_time_and_watermarks(
    embedded_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    producer = ConfluentProducer({"bootstrap.servers": embedded_broker.bootstrap_servers})
    base_ms = 1_700_000_000_000
    for value in range(10):
        producer.produce(topic_name, b"x", partition=0, timestamp=base_ms + value * 1000)
    assert producer.flush(60) == 0
    consumer = open_consumer()
    partition = TopicPartition(topic_name, 0)
    assert consumer.get_watermark_offsets(partition, timeout=60) == (0, 10)
    found = consumer.offsets_for_times([TopicPartition(topic_name, 0, base_ms + 3500)], timeout=60)
    assert [entry.offset for entry in found] == [4]
    missing = consumer.offsets_for_times([TopicPartition(topic_name, 0, base_ms + 99_000)], timeout=60)
    assert [entry.offset for entry in missing] == [-1]


@pytest.mark.parametrize("protocol", ["newest", "oldest"])
def test_all_topics_are_listed(broker_of: Callable[[str], EmbeddedBroker], protocol: str, topic_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker_of(protocol).bootstrap_servers})
    admin.list_topics(topic_name, timeout=30)  # makes it

    assert len(admin.list_topics(timeout=30).topics[topic_name].partitions) == 3
