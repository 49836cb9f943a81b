"""Transactions at coordinators that give a running producer no newer epoch: InitProducerId 0 to 2, before Kafka 2.5."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import drop_reply, reply_with
from kafkaprod.errors import DeliveryFailedError, KafkaError, TransactionAbortedError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.reading import read_all

TIMEOUT_S = 30
NEWEST = {  # of Kafka 2.4; the tests give the version of InitProducerId
    ApiKey.PRODUCE: 8,
    ApiKey.FETCH: 11,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 2,
}


@pytest.fixture(params=[0, 1, 2])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    versions = NEWEST | {ApiKey.INIT_PRODUCER_ID: request.param}
    with EmbeddedBroker(topics={"t": 2}, transaction_version=1, max_versions=versions) as broker:
        yield broker


def make(broker: EmbeddedBroker, **options: Any) -> Producer:
    """A producer whose batches hold one of the tests' records each."""
    options = {"linger_ms": 0, "batch_size": 400} | options
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x", **options)
    producer.init_transactions(TIMEOUT_S)
    return producer


def values(name: str, count: int = 8) -> list[bytes]:
    return [f"{name}{number}".encode().ljust(300, b".") for number in range(count)]


def read(broker: EmbeddedBroker) -> list[bytes]:
    """The values that a read_committed reader gets, by partition."""
    return [record.value or b"" for records in read_all(broker.bootstrap_servers, "t").values() for record in records]


@pytest.mark.parametrize("before", [0, 1, 3], ids=["first", "second", "later"])
def test_next_transaction_goes_on_after_a_refused_record(broker: EmbeddedBroker, before: int) -> None:
    """Its sequence, and those of the batches that were in flight behind it, are used again."""
    with make(broker) as producer:
        with producer.transaction():
            producer.send_many("t", values("a"), partition=1)
        producer.begin_transaction()
        for value in values("b", before):
            producer.send("t", value, partition=0).result(TIMEOUT_S)
        broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        futures = []
        with contextlib.suppress(DeliveryFailedError):  # once the refusal is known
            for value in values("c"):
                futures.append(producer.send("t", value, partition=0))
        with pytest.raises(DeliveryFailedError) as caught:
            producer.commit_transaction(TIMEOUT_S)
        assert (caught.value.category, caught.value.outcome) == ("abortable", "not committed")
        assert all(future.exception(TIMEOUT_S) is not None for future in futures)
        producer.abort_transaction(TIMEOUT_S)
        for name in "de":
            with producer.transaction():
                for partition in (0, 1):
                    producer.send_many("t", values(name), partition=partition)
    expected = values("d") + values("e") + values("a") + values("d") + values("e")
    assert read(broker) == expected


def test_record_without_an_answer_ends_the_producer_and_its_successor_goes_on(broker: EmbeddedBroker) -> None:
    producer = make(broker, request_timeout_ms=300, delivery_timeout_ms=700)
    producer.partitions_for("t")
    producer.begin_transaction()
    broker.faults.on(ApiKey.PRODUCE, drop_reply())
    future = producer.send("t", b"lost", partition=0)
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(KafkaError, match="make a new one") as caught:
            call(TIMEOUT_S)
        assert (caught.value.category, caught.value.outcome) == ("recoverable", "not committed")
    assert isinstance(future.exception(0), KafkaError)
    producer.close(0)
    broker.faults.clear()
    with make(broker) as successor, successor.transaction():
        successor.send("t", b"kept", partition=0)
    assert read(broker) == [b"kept"]


def test_records_that_were_never_sent_are_dropped_by_an_abort(broker: EmbeddedBroker) -> None:
    with make(broker, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        producer.begin_transaction()
        future = producer.send("t", b"v", partition=0)
        producer.abort_transaction(TIMEOUT_S)
        assert isinstance(future.exception(0), TransactionAbortedError)
        with producer.transaction():
            producer.send("t", b"kept", partition=0)
    assert read(broker) == [b"kept"]
