"""kafka-python as a real client of the embedded broker: produce, a group that rebalances, commit and resume."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import CommitFailedError
from kafka.structs import TopicPartition

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.broker.fixtures_broker import wait_until


class Member:
    """A consumer of one group, polled by a thread of its own as kafka-python wants it.

    A poll that times out in the middle of a join makes kafka-python 3.0 forget to send heartbeats, so polls are long.
    """

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        self.values: list[int] = []
        self.share_size = 0
        self._commit_at: int | None = None
        self._is_stopping = False
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def commit(self, offset: int) -> None:
        """Commit once the member itself has read all its partitions up to the offset; returns when the broker has it.

        What an earlier owner has read does not count: a position is not handed over in a rebalance.
        """
        self._commit_at = offset
        wait_until(lambda: pause() or self._commit_at is None, f"a commit of offset {offset}")

    def close(self) -> None:
        """Leave the group. Idempotent."""
        self._is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            for records in self._consumer.poll(timeout_ms=5_000 if self.share_size == 0 else 300).values():
                self.values.extend(int(record.value) for record in records)
            share = self._consumer.assignment()
            self.share_size = len(share)
            if self._commit_at is not None and {self._consumer.position(place) for place in share} == {self._commit_at}:
                with contextlib.suppress(CommitFailedError):  # a rebalance: the next round has the new share
                    self._consumer.commit()
                    self._commit_at = None
        self._consumer.close()


OpenMember = Callable[[], Member]


@pytest.fixture
def open_member(embedded_broker: EmbeddedBroker, topic_name: str) -> Iterator[OpenMember]:
    """Open members of one group; all are closed at the end."""
    members: list[Member] = []

    def open_one() -> Member:
        members.append(Member(embedded_broker, topic_name))
        return members[-1]

    yield open_one
    for member in members:
        member.close()


def pause() -> bool:
    """Let other threads work, between two looks at what they have done."""
    return threading.Event().wait(0.02)


def produce(broker: EmbeddedBroker, topic: str, values: range) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    results = [producer.send(topic, b"%d" % value, partition=value % 3) for value in values]
    producer.flush(timeout=60)
    producer.close()
    assert sorted(result.get(timeout=1).partition for result in results) == sorted(value % 3 for value in values)


def share_sizes(members: list[Member]) -> list[int]:
    return sorted(member.share_size for member in members)


def test_three_kafka_python_members_share_the_partitions_rebalance_and_resume(
    embedded_broker: EmbeddedBroker, topic_name: str, open_member: OpenMember
) -> None:
    produce(embedded_broker, topic_name, range(300))
    members = [open_member() for _ in range(3)]

    def all_is_read_and_shared() -> bool:
        pause()
        seen = {value for member in members for value in member.values}
        return share_sizes(members) == [1, 1, 1] and seen == set(range(300))

    wait_until(all_is_read_and_shared, "three members with a partition each, and all records")
    for member in members:
        member.commit(100)

    members.pop().close()
    wait_until(lambda: pause() or share_sizes(members) == [1, 2], "two members take over the third's partition")
    for member in members:
        member.close()

    produce(embedded_broker, topic_name, range(300, 330))
    resumed = open_member()
    wait_until(lambda: pause() or len(resumed.values) >= 30, "the records produced since the commit")
    assert sorted(resumed.values) == list(range(300, 330))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_back_what_it_wrote_with_each_codec(
    embedded_broker: EmbeddedBroker, topic_name: str, codec: str | None
) -> None:
    producer = KafkaProducer(bootstrap_servers=embedded_broker.bootstrap_servers, compression_type=codec, linger_ms=50)
    for value in range(50):
        producer.send(topic_name, b"value %d" % value * 20, key=b"k", partition=0, headers=[("h", b"x")])
    producer.flush(timeout=60)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=embedded_broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    consumer.assign([TopicPartition(topic_name, 0)])
    records = [next(consumer) for _ in range(50)]
    consumer.close()
    assert [record.value for record in records] == [b"value %d" % value * 20 for value in range(50)]
    assert {(record.key, tuple(record.headers)) for record in records} == {(b"k", (("h", b"x"),))}


def test_kafka_python_administers_topics_groups_and_records(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=embedded_broker.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
        produce_two = KafkaProducer(bootstrap_servers=embedded_broker.bootstrap_servers)
        for partition in (0, 1):
            produce_two.send(topic_name, b"x", partition=partition).get(timeout=30)
        produce_two.close()
        assert topic_name in admin.list_topics()
        admin.delete_topics([topic_name])
        assert topic_name not in admin.list_topics()
    finally:
        admin.close()
