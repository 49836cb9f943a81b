"""Transactions against the embedded broker, by both rules: what readers see, offsets, fencing, lost answers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from kafkaprod import AsyncProducer, Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.transactions import describe_transaction
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import close, close_after_handling, delay, drop_reply, reply_with
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import (
    CommitUnknownError,
    ConfigError,
    DeliveryFailedError,
    DeliveryTimeoutError,
    ForkedProducerError,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimeoutError,
)
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.kafka.fixtures_mock_cluster import MockCluster

TIMEOUT_S = 30


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=True, num_partitions=2, transaction_version=request.param) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[str]:
    yield "t-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    broker.faults.clear()


def make(broker: EmbeddedBroker, transactional_id: str, **options: Any) -> Producer:
    producer = Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id, linger_ms=0, **options
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def read(broker: EmbeddedBroker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The values that a reader gets up to the end, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    values: list[bytes] = []
    ends = 0
    while ends < len(partitions):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            ends += 1
        else:
            values.append(message.value() or b"")
    consumer.close()
    return sorted(values)


def send_and_raise(producer: Producer, topic: str) -> None:
    producer.send_many(topic, [b"x"] * 10)
    raise ZeroDivisionError


def send_and_wait(producer: Producer, topic: str) -> None:
    producer.send(topic, b"x").result(TIMEOUT_S)
    threading.Event().wait(TIMEOUT_S)


def admin_client(broker: EmbeddedBroker) -> ClusterClient:
    return ClusterClient(ProducerConfig.from_options({"bootstrap.servers": broker.bootstrap_servers}))


def committed(broker: EmbeddedBroker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    (partition,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return int(partition.offset)


def test_committed_records_are_read_and_aborted_ones_are_not(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        for number in range(6):
            producer.begin_transaction()
            for partition in range(2):
                producer.send(topic, b"%d-%d" % (number, partition), partition=partition)
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert read(broker, topic) == [b"%d-%d" % (n, p) for n in (0, 1, 3, 4) for p in range(2)]
    assert len(read(broker, topic, "read_uncommitted")) >= 8


def test_blocks_and_tables_are_part_of_a_transaction(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send_many(topic, [b"a", b"b"])
            producer.send_columns(topic, (np.array([0, 1, 2], np.int32), b"cd"))
            producer.send_table(topic, {"value": ["e", "f"]})
        with pytest.raises(ZeroDivisionError), producer.transaction():
            send_and_raise(producer, topic)
    assert read(broker, topic) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_offsets_are_committed_with_the_records_or_not_at_all(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"v")
            producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({(topic, 0): (9, "more")}, topic)
        producer.abort_transaction()
        assert committed(broker, topic, topic) == 5
        with producer.transaction():
            producer.send_offsets_to_transaction({(topic, 0): 7}, topic)
    assert committed(broker, topic, topic) == 7


def test_group_metadata_of_other_clients(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"v", partition=0)
        confluent = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": f"{topic}-c",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        confluent.subscribe([topic])
        while confluent.poll(1.0) is None:
            pass
        with producer.transaction():
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], confluent.consumer_group_metadata())
        stale = confluent.consumer_group_metadata()
        confluent.close()
        assert committed(broker, f"{topic}-c", topic) == 1
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError) as caught:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], stale)
        assert caught.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        producer.abort_transaction()
        assert committed(broker, f"{topic}-c", topic) == 1
        python = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=f"{topic}-k",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        while not python.poll(5_000):  # a join that outlasts a poll is never finished
            pass
        with producer.transaction():
            producer.send_offsets_to_transaction({(topic, 0): 1}, python.group_metadata())
        python.close()
        assert committed(broker, f"{topic}-k", topic) == 1


def test_group_metadata_of_an_aiokafka_consumer(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, transactional_id=topic, linger_ms=0) as producer:
            await producer.init_transactions(TIMEOUT_S)
            async with producer.transaction() as same:
                assert same is producer
                await producer.send(topic, b"v", partition=0)
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
            )
            await consumer.start()
            await consumer.getone()
            producer.begin_transaction()
            await producer.send_offsets_to_transaction({(topic, 0): 5}, consumer)
            await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send_offsets_to_transaction({(topic, 0): 1}, consumer)
            await producer.commit_transaction()
            producer.begin_transaction()
            await producer.send(topic, b"w")
            await producer.abort_transaction()
            await consumer.stop()

    asyncio.run(main())
    assert committed(broker, topic, topic) == 1
    assert read(broker, topic) == [b"v"]


def test_second_producer_fences_the_first(broker: EmbeddedBroker, topic: str) -> None:
    first = make(broker, topic)
    first.begin_transaction()
    first.send(topic, b"lost").result(TIMEOUT_S)
    with make(broker, topic) as second:
        with pytest.raises((ProducerFencedError, TransactionAbortableError)):
            first.commit_transaction()
        with pytest.raises(ProducerFencedError, match=topic):
            first.abort_transaction()
        with pytest.raises(ProducerFencedError):
            first.send(topic, b"v")
        with second.transaction():
            second.send(topic, b"kept")
    first.close(TIMEOUT_S)
    assert read(broker, topic) == [b"kept"]


@pytest.mark.parametrize("fault", [close_after_handling, drop_reply, close], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_lost_answer_to_the_end_is_found_out(broker: EmbeddedBroker, topic: str, fault: Any, is_commit: bool) -> None:
    with make(broker, topic, request_timeout_ms=500, delivery_timeout_ms=30_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(TIMEOUT_S)
        broker.faults.on(ApiKey.END_TXN, fault(), times=1)
        producer.commit_transaction(TIMEOUT_S) if is_commit else producer.abort_transaction(TIMEOUT_S)
        with producer.transaction():
            producer.send(topic, b"w")
    assert read(broker, topic) == ([b"v", b"w"] if is_commit else [b"w"])


def test_commit_that_timed_out_is_resumed_by_the_same_call(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic, request_timeout_ms=30_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(TIMEOUT_S)
        broker.faults.on(ApiKey.END_TXN, reply_with(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        with pytest.raises(CommitUnknownError) as caught:
            producer.commit_transaction(0.3)
        assert isinstance(caught.value, TimeoutError)
        for call in (producer.begin_transaction, producer.abort_transaction, producer.init_transactions):
            with pytest.raises(IllegalStateError, match="must be repeated"):
                call()
        with pytest.raises(IllegalStateError):
            producer.send(topic, b"w")
        broker.faults.clear()
        producer.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [b"v"]


@pytest.mark.parametrize("api", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
@pytest.mark.parametrize("code", [16, 51, 0], ids=["moved", "concurrent", "lost"])
def test_trouble_with_any_request_is_got_over(broker: EmbeddedBroker, topic: str, api: ApiKey, code: int) -> None:
    broker.faults.on(api, reply_with(code) if code else close_after_handling(), times=2)
    with make(broker, topic) as producer, producer.transaction():
        producer.send(topic, b"v", partition=0)
        producer.send_offsets_to_transaction({(topic, 0): 1}, topic, TIMEOUT_S)
    assert read(broker, topic) == [b"v"]
    assert committed(broker, topic, topic) == 1


def test_failed_record_stops_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"first").result(TIMEOUT_S)
        broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.INVALID_RECORD), times=1)
        failed = producer.send(topic, b"bad", partition=0)
        with pytest.raises(DeliveryFailedError, match="INVALID_RECORD") as caught:
            producer.commit_transaction(TIMEOUT_S)
        assert caught.value.category == "abortable"
        assert repr(failed.exception(0)) == repr(caught.value.__cause__)  # each look has an error of its own
        with pytest.raises(DeliveryFailedError):
            producer.send(topic, b"v")
        producer.abort_transaction(TIMEOUT_S)
        with producer.transaction():
            producer.send(topic, b"second", partition=0)
    assert read(broker, topic) == [b"second"]


def test_block_whose_commit_fails_is_aborted(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.INVALID_RECORD), times=1)
        with pytest.raises(DeliveryFailedError), producer.transaction():
            producer.send(topic, b"bad", partition=0)
        with producer.transaction():
            producer.send(topic, b"good", partition=0)
    assert read(broker, topic) == [b"good"]


def test_records_that_were_not_sent_are_dropped_by_an_abort(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, linger_ms=60_000)
    with producer:
        producer.init_transactions(TIMEOUT_S)
        producer.partitions_for(topic)
        producer.begin_transaction()
        future = producer.send(topic, b"v")
        producer.abort_transaction(TIMEOUT_S)
        assert isinstance(future.exception(0), TransactionAbortedError)
    assert read(broker, topic, "read_uncommitted") == []


def test_record_that_expired_after_it_was_sent_is_not_committed(broker: EmbeddedBroker, topic: str) -> None:
    """It is in the log, and the abort hides it; a v1 producer gets a newer epoch, as a sequence may be missing."""
    with make(broker, topic, request_timeout_ms=300, delivery_timeout_ms=700) as producer:
        producer.partitions_for(topic)
        producer.begin_transaction()
        broker.faults.on(ApiKey.PRODUCE, drop_reply())
        future = producer.send(topic, b"v", partition=0)
        with pytest.raises(DeliveryFailedError):
            producer.commit_transaction(TIMEOUT_S)
        error = future.exception(0)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.possibly_persisted
        broker.faults.clear()
        producer.abort_transaction(TIMEOUT_S)
        for number in range(3):
            with producer.transaction():
                producer.send(topic, b"%d" % number, partition=0)
    assert read(broker, topic) == [b"0", b"1", b"2"]


def test_record_without_an_answer_ends_the_producer_of_older_brokers() -> None:
    """Before Kafka 3.6 such a record may be appended after the abort, in a transaction that nothing ends."""
    versions = {ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.PRODUCE: 9}
    with EmbeddedBroker(topics={"t": 2}, transaction_version=1, max_versions=versions) as broker:
        producer = make(broker, "x", request_timeout_ms=300, delivery_timeout_ms=700)
        producer.begin_transaction()
        broker.faults.on(ApiKey.PRODUCE, drop_reply())
        producer.send("t", b"lost", partition=0)
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(KafkaError, match="may still arrive") as caught:
                call(TIMEOUT_S)
            assert caught.value.category == "recoverable"
        producer.close(0)
        broker.faults.clear()
        with make(broker, "x") as successor, successor.transaction():
            successor.send("t", b"kept", partition=0)
        assert read(broker, "t") == [b"kept"]


def test_batch_that_is_too_large_is_split_in_its_transaction(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, config={"max.message.bytes": "2000"})])[topic].result(TIMEOUT_S)
    values = [b"%099d" % number for number in range(100)]
    with make(broker, topic) as producer:
        for first in (0, 50):
            with producer.transaction():
                producer.send_many(topic, values[first : first + 50], partition=0)
    assert read(broker, topic) == values


def test_interrupted_commit_is_resumed_and_an_interrupted_block_aborted(broker: EmbeddedBroker, topic: str) -> None:
    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with make(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(TIMEOUT_S)
        broker.faults.on(ApiKey.END_TXN, reply_with(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        timer = threading.Timer(0.2, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction(TIMEOUT_S)
        timer.join()
        with pytest.raises(IllegalStateError, match="must be repeated"):
            producer.abort_transaction()
        broker.faults.clear()
        producer.commit_transaction(TIMEOUT_S)
        timer = threading.Timer(0.2, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            send_and_wait(producer, topic)
        timer.join()
        with producer.transaction():
            producer.send(topic, b"w")
    assert read(broker, topic) == [b"v", b"w"]


def test_calls_are_timed(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"v")
            producer.send_offsets_to_transaction({(topic, 0): 1}, topic)
        producer.begin_transaction()
        producer.abort_transaction(TIMEOUT_S)
        metrics = producer.metrics()["producer-metrics"]
    for call in ("init", "begin", "send-offsets", "commit", "abort"):
        assert metrics[f"txn-{call}-time-ns-total"] > 0


def test_empty_transactions_need_no_request(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        before = broker.faults.fired_count(ApiKey.END_TXN)
        broker.faults.on(ApiKey.END_TXN, reply_with(ErrorCode.INVALID_TXN_STATE))
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.abort_transaction(TIMEOUT_S)
        assert broker.faults.fired_count(ApiKey.END_TXN) == before


def test_sending_outside_of_a_transaction_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer:
        for send in (
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_many(topic, [b"v"]),
            lambda: producer.send_columns(topic, (np.array([0, 1], np.int32), b"v")),
            lambda: producer.send_table(topic, {"value": ["v"]}),
        ):
            with pytest.raises(IllegalStateError, match="begin_transaction"):
                send()
        with producer.transaction():
            producer.send(topic, b"v")
            with pytest.raises(IllegalStateError), producer.transaction():
                pass
        with pytest.raises(IllegalStateError):
            producer.send(topic, b"v")
    assert read(broker, topic) == [b"v"]


def test_record_of_a_timed_out_transaction_and_the_next_one(topic: str, broker: EmbeddedBroker) -> None:
    """The coordinator aborts it. After its own abort a v2 producer is fine; to a v1 producer it looks like fencing."""
    producer = make(broker, topic, transaction_timeout_ms=300)
    producer.begin_transaction()
    producer.send(topic, b"late").result(TIMEOUT_S)
    reader = threading.Event()
    while not reader.wait(0.05) and not _is_aborted(broker, topic):
        pass
    with pytest.raises((ProducerFencedError, TransactionAbortableError)) as caught:
        producer.commit_transaction(TIMEOUT_S)
    assert caught.value.outcome == "not committed"
    if isinstance(caught.value, TransactionAbortableError):
        producer.abort_transaction(TIMEOUT_S)
        with producer.transaction():
            producer.send(topic, b"next")
        assert read(broker, topic) == [b"next"]
    producer.close(TIMEOUT_S)


def _is_aborted(broker: EmbeddedBroker, topic: str) -> bool:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "-", "isolation.level": "read_committed"}
    )
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1] for number in range(2)]
    consumer.close()
    return sum(ends) == 2


@pytest.mark.parametrize("ending", ["close", "with", "drop"])
def test_open_transaction_is_aborted_when_the_producer_ends(broker: EmbeddedBroker, topic: str, ending: str) -> None:
    producer = make(broker, topic)
    if ending == "with":
        producer.begin_transaction()
        producer.send(topic, b"v").result(TIMEOUT_S)
        with pytest.raises(IllegalStateError, match="aborted"), producer:
            pass
    else:
        producer.begin_transaction()
        producer.send(topic, b"v").result(TIMEOUT_S)
        if ending == "close":
            producer.close(TIMEOUT_S)
            with pytest.raises(ProducerClosedError):
                producer.commit_transaction()
        del producer
    assert read(broker, topic) == []


EXITS = {
    "end": "",
    "exception": "raise ZeroDivisionError",
    "sys.exit": "sys.exit(3)",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); signal.pause()",
    "os._exit": "os._exit(0)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
}


@pytest.mark.parametrize("how", EXITS)
def test_interpreter_that_ends_inside_a_transaction_aborts_it(broker: EmbeddedBroker, topic: str, how: str) -> None:
    """Where Python runs no exit functions the transaction is left to its timeout, or to the next producer."""
    program = f"""
import os, signal, sys
from kafkaprod import Producer
producer = Producer(bootstrap_servers={broker.bootstrap_servers!r}, transactional_id={topic!r})
producer.init_transactions()
producer.begin_transaction()
producer.send({topic!r}, b"v", partition=0).result(30)
{EXITS[how]}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr or how in ("exception", "SIGINT"), done.stderr
    with admin_client(broker) as client:
        state = describe_transaction(client, topic).state
    assert state == ("Ongoing" if how in ("os._exit", "SIGTERM") else "CompleteAbort")
    assert read(broker, topic, "read_uncommitted")[:1] == [b"v"]
    with make(broker, topic):
        assert read(broker, topic) == []


def test_close_without_time_leaves_the_transaction_to_the_next_producer(broker: EmbeddedBroker, topic: str) -> None:
    producer = make(broker, topic)
    producer.begin_transaction()
    producer.send(topic, b"v").result(TIMEOUT_S)
    producer.close(0)
    with make(broker, topic) as successor, successor.transaction():
        successor.send(topic, b"w")
    assert read(broker, topic) == [b"w"]


def test_calls_in_a_delivery_callback_are_refused(broker: EmbeddedBroker, topic: str) -> None:
    errors: list[BaseException] = []

    def on_delivery(*_: Any) -> None:
        try:
            producer.commit_transaction()
        except BaseException as error:
            errors.append(error)

    with make(broker, topic) as producer, producer.transaction():
        producer.send(topic, b"v").add_callback(on_delivery)
    assert [type(error) for error in errors] == [IllegalStateError]


def test_many_threads_send_in_one_transaction(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer, producer.transaction():
        threads = [threading.Thread(target=lambda: [producer.send(topic, b"v") for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read(broker, topic)) == 800


@pytest.mark.parametrize("is_block", [True, False], ids=["block", "record"])
def test_record_that_waits_does_not_get_into_the_next_transaction(
    broker: EmbeddedBroker, topic: str, is_block: bool
) -> None:
    errors: list[BaseException] = []
    is_sending = threading.Event()

    def send() -> None:
        is_sending.set()
        try:
            producer.send_many(topic, [b"v"]) if is_block else producer.send(topic, b"v")
        except IllegalStateError as error:
            errors.append(error)

    with make(broker, topic) as producer:
        producer.begin_transaction()
        broker.faults.on(ApiKey.METADATA, delay(1000), times=1)
        thread = threading.Thread(target=send)
        thread.start()
        is_sending.wait(TIMEOUT_S)
        while not broker.faults.fired_count(ApiKey.METADATA):
            pass
        producer.abort_transaction(TIMEOUT_S)
        with producer.transaction():
            thread.join(TIMEOUT_S)
    assert len(errors) == 1
    assert "ended while a record of it waited" in str(errors[0])
    assert read(broker, topic, "read_uncommitted") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_cannot_touch_the_transaction(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, topic) as producer, producer.transaction():
        producer.send(topic, b"v")
        child = os.fork()
        if child == 0:
            try:
                producer.commit_transaction()
            except ForkedProducerError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert read(broker, topic) == [b"v"]


def test_too_long_a_timeout_names_both_options(broker: EmbeddedBroker, topic: str) -> None:
    options = {"transactional_id": topic, "transaction_timeout_ms": 2_000_000_000}
    what = r"transaction_timeout_ms.*transaction\.max\.timeout\.ms"
    producer = Producer(options, bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(ConfigError, match=what):
        producer.init_transactions(TIMEOUT_S)
    producer.close()


def test_cancelled_commit_is_resumed(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, transactional_id=topic, linger_ms=0) as producer:
            await producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            await producer.send_and_wait(topic, b"v")
            broker.faults.on(ApiKey.END_TXN, reply_with(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await producer.commit_transaction()
            with pytest.raises(IllegalStateError, match="must be repeated"):
                producer.begin_transaction()
            broker.faults.clear()
            await producer.commit_transaction(TIMEOUT_S)

    asyncio.run(main())
    assert read(broker, topic) == [b"v"]


def test_cancelled_block_is_aborted(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> None:
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, transactional_id=topic, linger_ms=0) as producer:
            await producer.init_transactions(TIMEOUT_S)
            entered = asyncio.Event()

            async def block() -> None:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"v")
                    entered.set()
                    await asyncio.sleep(TIMEOUT_S)

            task = asyncio.create_task(block())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(topic, b"w")

    asyncio.run(main())
    assert read(broker, topic) == [b"w"]


# -- without a broker, and librdkafka's mock cluster -------------------------------------------------------------------


def test_producer_without_an_id_has_no_transactions() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.transaction):
            with pytest.raises(IllegalStateError, match="transactional_id"):
                call()


def test_two_phase_commit_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="KIP-939"):
        Producer(bootstrap_servers="127.0.0.1:1", transactional_id="t", transaction_two_phase_commit_enable=True)


def test_call_without_a_cluster_times_out_and_bad_timeouts_are_refused() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", transactional_id="t") as producer:
        with pytest.raises(TransactionTimeoutError):
            producer.init_transactions(0.05)
        with pytest.raises(InvalidRecordError):
            producer.init_transactions(float("nan"))


def test_librdkafkas_mock_cluster(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("t", 2)
    mock_cluster.push_errors(ApiKey.INIT_PRODUCER_ID, [14, 51])
    mock_cluster.push_errors(ApiKey.ADD_PARTITIONS_TO_TXN, [51, 16])
    mock_cluster.push_errors(ApiKey.END_TXN, [14, 16, 51])
    with Producer(bootstrap_servers=mock_cluster.bootstrap, transactional_id="tx", linger_ms=0) as producer:
        producer.init_transactions(TIMEOUT_S)
        with producer.transaction():
            producer.send_many("t", [b"v"] * 100)
            producer.send_offsets_to_transaction({("t", 0): 1}, "g", TIMEOUT_S)
        mock_cluster.push_errors(ApiKey.END_TXN, [ErrorCode.PRODUCER_FENCED] * 2)  # asked twice, right after a move
        producer.begin_transaction()
        producer.send("t", b"v")
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction(TIMEOUT_S)
