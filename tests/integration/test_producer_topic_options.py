"""Batches of topics with options of their own, as the broker's log has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import Column, Producer
from kafkaprod._core.records.batch_reader import RecordBatchReader, read_batches
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.compression import CODEC_NAMES, decompress

VALUE = b"x" * 491  # a record of 500 bytes
COUNT = 200
USUAL, OWN, LARGE = 5000, 2000, 20_000
OPTIONS: dict[str, Any] = {
    "linger_ms": 50,
    "batch_size": USUAL,
    "compression_type": "none",
    "topic_options": {
        "small": {"batch_size": OWN},
        "large-*": {"batch_size": LARGE},
        "zipped": {"compression_type": "zstd", "compression_zstd_level": 9},
    },
}
TOPICS = ("usual", "small", "large-1", "zipped")


def send_each(producer: Producer, topic: str) -> None:
    for _ in range(COUNT):
        producer.send(topic, VALUE)


def send_list(producer: Producer, topic: str) -> None:
    producer.send_many(topic, [VALUE] * COUNT)


def send_columns(producer: Producer, topic: str) -> None:
    producer.send_columns(topic, Column.from_list([VALUE] * COUNT, "values"))


def log_of(broker: EmbeddedBroker, topic: str) -> list[RecordBatchReader]:
    """The batches of a topic with one partition as its log has them, CRCs checked."""
    (path,) = Path(broker.data_dir).glob(f"{topic}-0/*.log")
    return list(read_batches(path.read_bytes(), decompress))


def send_all(send: Callable[[Producer, str], None], **more: Any) -> dict[str, list[RecordBatchReader]]:
    with EmbeddedBroker(topics=dict.fromkeys(TOPICS, 1)) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, **OPTIONS | more) as producer:
            if "transactional_id" in more:
                producer.init_transactions()
                producer.begin_transaction()
            for topic in TOPICS:
                send(producer, topic)
            if "transactional_id" in more:
                producer.commit_transaction()
            producer.flush(10)
        logs = {topic: log_of(broker, topic) for topic in TOPICS}
    return {topic: [batch for batch in batches if not batch.is_control] for topic, batches in logs.items()}


@pytest.mark.parametrize("send", [send_each, send_list, send_columns])
def test_batches_have_the_size_and_the_codec_of_their_topic(send: Callable[[Producer, str], None]) -> None:
    logs = send_all(send)
    for topic, batches in logs.items():
        assert sum(batch.record_count for batch in batches) == COUNT, topic
        assert {CODEC_NAMES[batch.codec_id] for batch in batches} == {"zstd" if topic == "zipped" else "none"}, topic
    for topic, limit in (("usual", USUAL), ("small", OWN), ("large-1", LARGE)):
        assert limit - 501 < max(batch.size_bytes for batch in logs[topic]) <= limit, topic
    assert max(batch.record_count for batch in logs["zipped"]) * 500 <= USUAL


def test_batches_of_a_transaction_do_too() -> None:
    logs = send_all(send_list, transactional_id="t")
    assert max(batch.size_bytes for batch in logs["small"]) <= OWN
    assert {batch.codec_id for batch in logs["zipped"]} == {4}
    assert all(sum(batch.record_count for batch in batches) == COUNT for batches in logs.values())


def test_topic_may_be_plain_where_the_others_are_compressed() -> None:
    own = {"topic_options": {"usual": {"compression_type": "none"}, "small": {"compression_type": "lz4"}}}
    logs = send_all(send_list, compression_type="gzip", compression_workers=2, **own)
    codecs = {topic: {CODEC_NAMES[batch.codec_id] for batch in batches} for topic, batches in logs.items()}
    assert codecs == {"usual": {"none"}, "small": {"lz4"}, "large-1": {"gzip"}, "zipped": {"gzip"}}


def test_record_of_a_topic_without_linger_goes_at_once_and_takes_along_those_that_linger() -> None:
    with (
        EmbeddedBroker(topics={"slow": 1, "urgent": 1}) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            linger_ms=60_000,
            topic_options={"urgent": {"linger_ms": 0}},
        ) as producer,
    ):
        producer.send("urgent", b"value").result(10)
        waiting = producer.send("slow", b"value")
        producer.send("urgent", b"value").result(10)
        assert waiting.result(10).topic == "slow"


def test_batches_larger_than_what_a_broker_may_hold_go_when_memory_is_short() -> None:
    memory = 256 << 10
    with (
        EmbeddedBroker(topics={"t": 1}) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            buffer_memory=memory,
            batch_size=1000,
            linger_ms=60_000,
            topic_options={"t": {"batch_size": memory}},
        ) as producer,
    ):
        sent = producer.send_many("t", [VALUE] * (4 * memory // len(VALUE)))
        assert sent.failed_count == 0
        producer.flush(10)
        sizes = [batch.size_bytes for batch in log_of(broker, "t")]
    assert 1000 < max(sizes) <= memory
