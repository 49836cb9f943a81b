"""Transactions on Apache Kafka 2.4, whose coordinators give a running producer no newer epoch."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.errors import DeliveryFailedError, KafkaError
from kafkaprod.protocol.frames import split_response
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.kafka.cluster import KafkaCluster
from tests.kafka.proxy import INIT_PRODUCER_ID, PRODUCE
from tests.kafka.proxy_actions import Drop, Forward
from tests.kafka.proxy_link import Frame
from tests.kafka.reading import read_all
from tests.kafka.runtime import WITHOUT_EPOCHS_VERSION
from tests.support.kafka.fixtures_kafka import ProxiedCluster, proxied_cluster

pytestmark = pytest.mark.external

TIMEOUT_S = 60
LARGEST_BATCH = 1000  # bytes
ROUNDS = 20
IN_FLIGHT = 4  # batches behind a refused one
SIZE_BYTES = 4  # of a frame's first field
EPOCHS_SINCE = 3  # this version of InitProducerId


@pytest.fixture(scope="module")
def rig() -> Iterator[ProxiedCluster]:
    yield from proxied_cluster(KafkaCluster(1, listeners=("PLAINTEXT", "PROXIED"), version=WITHOUT_EPOCHS_VERSION))


@pytest.fixture
def topic(rig: ProxiedCluster) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    rig.cluster.create_topic(name, 2, config={"max.message.bytes": LARGEST_BATCH})
    yield name
    rig.proxies[1].clear()


def make(rig: ProxiedCluster, transactional_id: str, **options: Any) -> Producer:
    """A producer whose batches hold one of the tests' records each."""
    options = {"linger_ms": 0, "batch_size": 400} | options
    servers = rig.cluster.bootstrap("PROXIED")
    producer = Producer(options, bootstrap_servers=servers, transactional_id=transactional_id)
    producer.init_transactions(TIMEOUT_S)
    return producer


def value(number: int, index: int) -> bytes:
    return f"{number}-{index}".encode().ljust(300, b".")


def send(producer: Producer, topic: str, number: int, refused: bytes | None = None) -> None:
    """Send the records of a transaction to both partitions; behind the refused one several are in flight."""
    for index in range(number % 2):
        producer.send(topic, value(number, index), partition=0).result(TIMEOUT_S)
    if refused is not None:
        producer.send(topic, refused, partition=0)
    for index in range(number % 2, number % 2 + IN_FLIGHT):
        for partition in (0, 1):
            producer.send(topic, value(number, index), partition=partition)


def read(rig: ProxiedCluster, topic: str) -> dict[int, list[bytes]]:
    """The values of each partition that a read_committed reader gets."""
    partitions = read_all(rig.cluster.bootstrap(), topic)
    return {number: [record.value or b"" for record in records] for number, records in partitions.items()}


def gives_a_producer(reply: Frame) -> bool:
    """Whether a reply to InitProducerId has an id, by a version that gives a running producer no newer epoch.

    A coordinator that still loads its log answers an error, and is asked once more.
    """
    is_flexible = InitProducerIdResponse.is_flexible(reply.version)
    _, body = split_response(reply.data[SIZE_BYTES:], INIT_PRODUCER_ID, is_flexible)
    return reply.version < EPOCHS_SINCE and not InitProducerIdResponse.decode(body, reply.version).error_code


def test_transactions_go_on_after_refused_records(rig: ProxiedCluster, topic: str) -> None:
    """Every third one has a record that the broker refuses, first or later, with batches in flight behind it."""
    inits = rig.proxies[1].on_reply(INIT_PRODUCER_ID, Forward(), times=None, where=gives_a_producer)
    with make(rig, topic) as producer:
        for number in range(ROUNDS):
            producer.begin_transaction()
            if number % 3:
                send(producer, topic, number)
                producer.commit_transaction(TIMEOUT_S)
                continue
            with contextlib.suppress(DeliveryFailedError):
                send(producer, topic, number, b"." * 2 * LARGEST_BATCH)
            with pytest.raises(DeliveryFailedError) as caught:
                producer.commit_transaction(TIMEOUT_S)
            assert caught.value.category == "abortable"
            producer.abort_transaction(TIMEOUT_S)
    assert inits.hits == 1, "one producer, by a version that gives no newer epoch"
    committed = [number for number in range(ROUNDS) if number % 3]
    found = read(rig, topic)
    assert found[0] == [value(n, index) for n in committed for index in range(n % 2 + IN_FLIGHT)]
    assert found[1] == [value(n, index) for n in committed for index in range(n % 2, n % 2 + IN_FLIGHT)]


def test_record_without_an_answer_ends_the_producer_and_its_successor_goes_on(rig: ProxiedCluster, topic: str) -> None:
    producer = make(rig, topic, request_timeout_ms=500, delivery_timeout_ms=1500)
    with producer.transaction():
        producer.send(topic, b"first", partition=0)
    producer.begin_transaction()
    rig.proxies[1].on_reply(PRODUCE, Drop(), times=None)
    producer.send(topic, b"lost", partition=0)
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(KafkaError, match="make a new one") as caught:
            call(TIMEOUT_S)
        assert caught.value.category == "recoverable"
    producer.close(0)
    rig.proxies[1].clear()
    with make(rig, topic) as successor, successor.transaction():
        successor.send(topic, b"kept", partition=0)
    assert read(rig, topic)[0] == [b"first", b"kept"]
