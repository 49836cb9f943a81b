"""Callbacks run on the thread that fetches metadata: what they send to a topic that is not known yet is kept."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkaprod import DeliveryFuture, Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import (
    BufferFullError,
    DeliveryFailedError,
    MetadataTimeoutError,
    PurgedError,
)
from kafkaprod.hooks.reports import ReportingProducer
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

BOUND_S = 30
RECORDS = 5


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker


def values(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def refuse(broker: EmbeddedBroker) -> None:
    broker.faults.on("PRODUCE", reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)


class DeadLetters:
    def __init__(self) -> None:
        self.producer: Producer

    def on_acknowledgement(self, metadata: Any, error: Exception | None = None) -> None:
        if error is not None and metadata.topic == "t":
            self.producer.send("dead", b"1")


def by_done_callback(producer: Producer, letters: DeadLetters) -> None:
    producer.send("t", b"x").add_done_callback(lambda done: producer.send("dead", b"1") if done.failed() else None)


def by_errback(producer: Producer, letters: DeadLetters) -> None:
    producer.send("t", b"x").add_errback(lambda error: producer.send("dead", b"1"))


def by_report(producer: Producer, letters: DeadLetters) -> None:
    reporting: ReportingProducer

    def on_report(report: Any) -> None:
        if report.error is not None:
            producer.send("dead", b"1")

    reporting = ReportingProducer(producer, on_report)
    reporting.send("t", b"x")


def by_interceptor(producer: Producer, letters: DeadLetters) -> None:
    letters.producer = producer
    producer.send("t", b"x")


@pytest.mark.parametrize("way", [by_done_callback, by_errback, by_report, by_interceptor])
def test_a_dead_letter_for_a_topic_that_was_not_used_before_arrives(
    broker: EmbeddedBroker, way: Callable[[Producer, DeadLetters], None]
) -> None:
    letters = DeadLetters()
    interceptors = [letters] if way is by_interceptor else []
    refuse(broker)
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=interceptors, linger_ms=20) as producer:
        for _ in range(RECORDS):
            way(producer, letters)
        with contextlib.suppress(DeliveryFailedError):
            producer.flush(BOUND_S)
        producer.flush(BOUND_S)
        assert values(broker, "dead") == [b"1"] * RECORDS
        assert not producer._engine.sender.parking


def in_callback(producer: Producer, call: Callable[[], Any]) -> Any:
    """Make a call on the sender thread; return what it returns or raises."""
    outcome: list[Any] = []
    called = threading.Event()

    def run(_: DeliveryFuture) -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)
        called.set()

    producer.send("t", b"x").add_done_callback(run)
    assert called.wait(BOUND_S)
    return outcome[0]


def test_kept_records_stay_in_order_with_their_key_headers_and_time(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        futures = in_callback(
            producer,
            lambda: [producer.send("new", b"%d" % n, b"key", [("h", b"v")], timestamp_ms=1000 + n) for n in range(100)],
        )
        found = [future.result(BOUND_S) for future in futures]
        assert [metadata.offset for metadata in found] == list(range(100))
        assert {(metadata.topic, metadata.partition) for metadata in found} == {("new", 0)}
        assert (found[0].serialized_key_size, found[0].serialized_value_size, found[7].timestamp) == (3, 1, 1007)
        assert [future.partition for future in futures] == [0] * 100
        assert all(future.succeeded() and future.exception() is None for future in futures)
        assert values(broker, "new") == [b"%d" % n for n in range(100)]


def test_a_kept_record_has_callbacks_and_can_be_waited_for(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        seen: list[int] = []

        def send() -> DeliveryFuture:
            future = producer.send("new", b"1")
            assert not future.done()
            future.add_done_callback(lambda done: seen.append(done.result(0).offset))
            return future

        in_callback(producer, send).result(BOUND_S)
        producer.flush(BOUND_S)
        assert seen == [0]


def test_close_delivers_what_is_kept(broker: EmbeddedBroker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    in_callback(producer, lambda: producer.send("new", b"1"))
    producer.close(BOUND_S)
    assert values(broker, "new") == [b"1"]


def test_a_topic_that_does_not_come_fails_what_is_kept_after_max_block_ms(broker: EmbeddedBroker) -> None:
    options = {"bootstrap_servers": broker.bootstrap_servers, "allow_auto_create_topics": False}
    with Producer(options, max_block_ms=200) as producer:
        future = in_callback(producer, lambda: producer.send("new", b"1"))
        error = future.exception(BOUND_S)
        assert isinstance(error, MetadataTimeoutError)
        assert "within max_block_ms=200" in str(error)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in str(error)


def test_a_partition_that_comes_later_gets_what_is_kept_for_it(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, metadata_max_age_ms=100) as producer:
        future = in_callback(producer, lambda: producer.send("t", b"1", partition=1))
        grow(broker)
        assert future.result(BOUND_S).partition == 1


def grow(broker: EmbeddedBroker) -> None:
    with ClusterClient(ProducerConfig.from_options(bootstrap_servers=broker.bootstrap_servers)) as client:
        topics = [CreatePartitionsTopic(name="t", count=2)]
        answer = client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=10_000))
        assert answer.results[0].error_code == 0


def test_purge_fails_what_is_kept(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, allow_auto_create_topics=False) as producer:
        future = in_callback(producer, lambda: producer.send("new", b"1"))
        assert producer.purge() == 1
        assert isinstance(future.exception(BOUND_S), PurgedError)


def test_what_is_kept_holds_no_more_than_buffer_memory(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=65536, batch_size=4096) as producer:

        def send() -> list[DeliveryFuture]:
            return [producer.send("new", bytes(10_000)) for _ in range(7)]

        error = in_callback(producer, send)
        assert isinstance(error, BufferFullError)
        assert "records that wait for their topic's metadata hold" in str(error)
        producer.flush(BOUND_S)
    assert len(values(broker, "new")) == 6


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send_many("new", [b"1"]),
        lambda producer: producer.send_table("new", {"value": [b"1"]}),
        lambda producer: producer.partitions_for("new"),
    ],
)
def test_a_call_that_cannot_be_kept_says_so_and_requests_the_topic(
    broker: EmbeddedBroker, call: Callable[[Producer], Any]
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        error = in_callback(producer, lambda: call(producer))
        assert isinstance(error, MetadataTimeoutError)
        assert "for which a delivery callback cannot wait: it was requested" in str(error)
        producer.partitions_for("new")
        assert not isinstance(in_callback(producer, lambda: call(producer)), Exception)
