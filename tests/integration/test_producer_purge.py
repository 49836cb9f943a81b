"""`purge()`: each purged record gets one outcome, and the producer works on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from kafkaprod import AsyncProducer, DeliveryFuture, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay, drop_reply
from kafkaprod.errors import DeliveryFailedError, ProducerClosedError, PurgedError
from kafkaprod.protocol.api_keys import ApiKey
from tests.kafka.reading import read_all
from tests.support.broker.fixtures_broker import wait_until

LIMIT_S = 30.0


@pytest.fixture
def broker(embedded_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """The shared broker, without faults."""
    embedded_broker.faults.clear()
    yield embedded_broker
    embedded_broker.faults.clear()


def values(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    """The values of all records in a topic."""
    return [record.value for records in read_all(broker.bootstrap_servers, topic).values() for record in records]


def test_records_in_the_queue(broker: EmbeddedBroker, topic_name: str) -> None:
    callbacks: list[DeliveryFuture] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        futures = [producer.send(topic_name, b"%d" % number) for number in range(10)]
        block = producer.send_many(topic_name, [b"a", b"b"])
        futures[3].add_done_callback(callbacks.append)
        assert producer.purge(in_queue=False) == 0
        assert not futures[0].done()
        assert producer.purge(in_flight=False) == 12
        assert callbacks == [futures[3]]
        for future in futures:
            error = future.exception(0)
            assert isinstance(error, PurgedError)
            assert "purged in the queue" in str(error)
            assert (error.was_in_flight, error.possibly_persisted) == (False, False)
            assert error.context["topic"] == topic_name
        assert block.failed_count == 2
        assert isinstance(block.errors[1], PurgedError)
        assert producer.purge() == 0
        later = producer.send(topic_name, b"later")
        producer.flush(LIMIT_S)
        assert later.result(0).offset == 0
    assert values(broker, topic_name) == [b"later"]


def test_records_in_flight(broker: EmbeddedBroker, topic_name: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=1000) as producer:
        producer.send(topic_name, b"first", partition=0).result(LIMIT_S)
        fired_before = broker.faults.fired_count(ApiKey.PRODUCE)
        broker.faults.on(ApiKey.PRODUCE, drop_reply(), times=1)
        sent = producer.send(topic_name, b"sent", partition=0)
        wait_until(lambda: broker.faults.fired_count(ApiKey.PRODUCE) > fired_before, "the request")
        assert producer.purge(in_flight=False) == 0
        assert producer.purge(in_queue=False) == 1
        error = sent.exception(0)
        assert isinstance(error, PurgedError)
        assert "purged in flight" in str(error)
        assert (error.was_in_flight, error.possibly_persisted) == (True, True)
        later = producer.send(topic_name, b"later", partition=0)
        assert later.result(LIMIT_S).offset == 2
    assert values(broker, topic_name) == [b"first", b"sent", b"later"]


def test_from_a_delivery_callback_it_runs_after_the_callback(broker: EmbeddedBroker, topic_name: str) -> None:
    results: list[int] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        first = producer.send(topic_name, b"first")
        first.add_done_callback(lambda _: results.append(producer.purge()))
        thread = threading.Thread(target=producer.flush, args=(LIMIT_S,))
        thread.start()
        thread.join(LIMIT_S)
        assert (first.result(0).offset, results) == (0, [0])
        waiting = producer.send(topic_name, b"waiting")
        assert producer.purge() == 1
        assert isinstance(waiting.exception(0), PurgedError)


def test_a_transaction_can_only_be_aborted(broker: EmbeddedBroker, topic_name: str) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=topic_name, linger_ms=60_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(topic_name, b"purged")
        assert producer.purge() == 1
        assert isinstance(future.exception(0), PurgedError)
        with pytest.raises(DeliveryFailedError, match="purged"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic_name, b"kept")
    assert values(broker, topic_name) == [b"kept"]


def test_a_closed_producer_refuses_it(broker: EmbeddedBroker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.purge()


async def test_in_asyncio(broker: EmbeddedBroker, topic_name: str) -> None:
    async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = await producer.send(topic_name, b"purged")
        assert await producer.purge() == 1
        with pytest.raises(PurgedError):
            await future


def test_every_record_has_one_outcome_while_threads_send_and_purge(broker: EmbeddedBroker, topic_name: str) -> None:
    count = 3000
    outcomes: Counter[bytes] = Counter()
    delivered: set[bytes] = set()
    unknown: set[bytes] = set()
    lock = threading.Lock()
    broker.faults.on(ApiKey.PRODUCE, delay(5), rate=0.3, seed=1)

    def settle(value: bytes, future: DeliveryFuture) -> None:
        error = future.exception(0)
        assert error is None or isinstance(error, PurgedError)
        with lock:
            outcomes[value] += 1
            if error is None:
                delivered.add(value)
            elif error.possibly_persisted:
                unknown.add(value)

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1) as producer:

        def send(name: int) -> None:
            for number in range(count):
                value = b"%d-%d" % (name, number)
                producer.send(topic_name, value).add_done_callback(partial(settle, value))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(2)]
        for thread in threads:
            thread.start()
        purged = 0
        while any(thread.is_alive() for thread in threads):
            purged += producer.purge()
        broker.faults.clear()
        producer.flush(LIMIT_S)
    assert len(outcomes) == 2 * count
    assert set(outcomes.values()) == {1}
    assert purged == 2 * count - len(delivered)
    found = Counter(values(broker, topic_name))
    assert set(found.values()) <= {1}
    assert delivered <= found.keys() <= delivered | unknown
