"""What topics of Apache Kafka demand: sizes, timestamps, existence; and what `Producer` makes of it."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from kafkaprod import Producer
from kafkaprod.errors import BrokerError, MetadataTimeoutError, RecordTooLargeError, TopicNotFoundError
from tests.kafka.cluster import KafkaCluster
from tests.kafka.reading import LOG_APPEND_TIME, read_all
from tests.support.producer.delivered import CLOCK_TICK_MS, GivenRecord, Sends

pytestmark = pytest.mark.external

LIMIT_S = 30.0
SOON_MS = 500
LIMIT_BYTES = 20_000


@pytest.fixture
def narrow_topic(kafka: KafkaCluster, topic_name: str) -> str:
    """A topic of one partition that takes batches of LIMIT_BYTES at most."""
    return kafka.create_topic(topic_name, config={"max.message.bytes": LIMIT_BYTES})


def test_topic_that_does_not_exist_is_named_when_max_block_ms_has_passed(kafka: KafkaCluster, topic_name: str) -> None:
    with Producer(
        bootstrap_servers=kafka.bootstrap(), allow_auto_create_topics=False, max_block_ms=SOON_MS
    ) as producer:
        for call in (lambda: producer.send(topic_name, b"value"), lambda: producer.partitions_for(topic_name)):
            with pytest.raises(MetadataTimeoutError, match=f"{topic_name}.*max_block_ms={SOON_MS}.*UNKNOWN_TOPIC") as e:
                call()
            assert isinstance(e.value.__cause__, TopicNotFoundError)
        assert topic_name not in kafka.admin().list_topics(timeout=10).topics


def test_topic_that_does_not_exist_is_made_where_that_is_allowed(kafka: KafkaCluster, topic_name: str) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap()) as producer:
        assert producer.send(topic_name, b"value").result(LIMIT_S).offset == 0


def test_topic_made_while_a_send_waits_for_it_is_used(kafka: KafkaCluster, topic_name: str) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap(), allow_auto_create_topics=False) as producer:
        kafka.create_topic(topic_name, 2)
        assert producer.partitions_for(topic_name) == {0, 1}
        kafka.add_partitions(topic_name, 3)
        assert producer.send(topic_name, b"value", partition=2).result(LIMIT_S).partition == 2


def test_batches_above_the_topics_limit_are_split(kafka: KafkaCluster, narrow_topic: str) -> None:
    rng = random.Random(5)
    sends = Sends()
    records = [GivenRecord(None, b"%04d" % i + rng.randbytes(1500), [], 1000 + i) for i in range(200)]
    with Producer(bootstrap_servers=kafka.bootstrap()) as producer:
        block = producer.send_many(
            narrow_topic,
            [record.value for record in records],
            timestamps_ms=np.array([record.timestamp_ms for record in records], dtype=np.int64),
        )
        sends.add(block, *records)
        for record in records:
            sends.add(producer.send(narrow_topic, record.value, timestamp_ms=record.timestamp_ms), record)
        producer.flush(LIMIT_S)
        assert producer.metrics()["producer-metrics"]["batch-split-total"] > 0
    sends.check(read_all(kafka.direct_bootstrap(), narrow_topic))


def test_record_above_the_topics_limit_fails_alone(kafka: KafkaCluster, narrow_topic: str) -> None:
    values = [b"small"] * 50 + [bytes(LIMIT_BYTES)] + [b"small"] * 50
    with Producer(bootstrap_servers=kafka.bootstrap(), linger_ms=50) as producer:
        futures = [producer.send(narrow_topic, value) for value in values]
        assert isinstance(futures[50].exception(LIMIT_S), RecordTooLargeError)
        offsets = [future.result(LIMIT_S).offset for future in futures if future is not futures[50]]
    assert offsets == list(range(100))
    (log,) = read_all(kafka.direct_bootstrap(), narrow_topic).values()
    assert [record.value for record in log] == [b"small"] * 100


def test_record_above_our_own_limit_is_refused_by_send(kafka: KafkaCluster, narrow_topic: str) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap(), max_request_size=5000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"5000.*max_request_size"):
            producer.send(narrow_topic, bytes(5000))
        with pytest.raises(RecordTooLargeError):
            producer.send_many(narrow_topic, [b"small", bytes(5000)])


def test_log_append_time_is_told(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    with Producer(bootstrap_servers=kafka.bootstrap()) as producer:
        metadata = producer.send(topic_name, b"value", timestamp_ms=1).result(LIMIT_S)
        block = producer.send_many(topic_name, [b"value"] * 3).result(LIMIT_S)
    (log,) = read_all(kafka.direct_bootstrap(), topic_name).values()
    assert [record.timestamp_type for record in log] == [LOG_APPEND_TIME] * 4
    assert [record.timestamp for record in log] == [metadata.timestamp, *block.timestamps.tolist()]
    assert metadata.timestamp >= before_ms


def test_create_time_is_the_given_one_or_now(kafka: KafkaCluster, topic_name: str) -> None:
    before_ms = int(time.time() * 1000)
    with Producer(bootstrap_servers=kafka.bootstrap()) as producer:
        given = producer.send(topic_name, b"value", partition=0, timestamp_ms=1_234_567_890_123).result(LIMIT_S)
        now = producer.send(topic_name, b"value", partition=0).result(LIMIT_S)
    assert given.timestamp == 1_234_567_890_123
    assert before_ms - CLOCK_TICK_MS <= now.timestamp <= int(time.time() * 1000)
    (log,) = read_all(kafka.direct_bootstrap(), topic_name).values()
    assert [record.timestamp for record in log] == [given.timestamp, now.timestamp]


def test_records_the_broker_names_fail_and_the_others_say_why(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"cleanup.policy": "compact"})
    with Producer(bootstrap_servers=kafka.bootstrap(), linger_ms=50) as producer:
        keyed = [producer.send(topic_name, b"value", key=b"key") for _ in range(3)]
        keyless = producer.send(topic_name, b"value")
        errors = [future.exception(LIMIT_S) for future in (*keyed, keyless)]
        assert all(isinstance(error, BrokerError) for error in errors)
        assert "key" in str(errors[-1])
        assert producer.send(topic_name, b"value", key=b"key").result(LIMIT_S).offset == 0
