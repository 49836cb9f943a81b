"""What a producer answers without any broker: nothing listens at its bootstrap server."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kafkaprod import Producer
from kafkaprod._core.queues.topic_queues import TopicQueues
from kafkaprod.engine.host import _running
from kafkaprod.errors import (
    ArgumentTypeError,
    BootstrapError,
    BufferFullError,
    ConfigError,
    DeliveryFailedError,
    IllegalStateError,
    InvalidRecordError,
    ProducerClosedError,
)
from tests.support.broker.fixtures_broker import wait_until
from tests.support.threads import thread_count

MakeProducer = Callable[..., Producer]


@pytest.fixture
def make() -> Iterator[MakeProducer]:
    made: list[Producer] = []

    def make(**options: Any) -> Producer:
        made.append(Producer(**{"bootstrap_servers": "127.0.0.1:1", "max_block_ms": 20, **options}))
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


def know(producer: Producer, topic: str = "t", partition_count: int = 2) -> TopicQueues:
    """Let the producer know a topic without leaders: records stay queued."""
    return producer.accumulator.set_topic(topic, [-1] * partition_count)


def in_thread(call: Callable[[], object], is_waiting: Callable[[], object], end: Callable[[], None]) -> list[Exception]:
    """Run `call` in a thread, `end` once it waits; return what it raised."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(is_waiting, "the call waits")
    end()
    thread.join(20)
    assert not thread.is_alive()
    return errors


def test_partitioner_hears_of_a_topic_that_goes_idle_while_its_record_is_made(make: MakeProducer) -> None:
    told: list[tuple[int, list[int]]] = []

    class Last:
        def partition(self, topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]) -> int:
            told.append((partition_count, list(available)))
            return partition_count - 1

    def forget(value: bytes) -> bytes:  # as the sender may at any time
        producer.accumulator.forget_topic("t")
        return value

    producer = make(partitioner=Last(), value_serializer=forget)
    producer.accumulator.set_topic("t", [-1, 1, -1])
    assert producer.send("t", b"v").partition == 2
    assert told == [(3, [1])]


def fill(producer: Producer) -> None:
    while True:
        producer.send("t", b"x" * 10_000, partition=0)


def test_bootstrap_server_that_refuses_is_named_with_the_stage(make: MakeProducer) -> None:
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1 \(connect\)"):
        make(max_block_ms=2000).send("t", b"v")


def test_server_that_says_nothing_is_named_with_the_stage(make: MakeProducer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        producer = make(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=500)
        with pytest.raises(BootstrapError, match=rf"127\.0\.0\.1:{port} \(api_versions\): no answer yet"):
            producer.send("t", b"v")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partition": "one"}, "partition must be int or None, not str"),
        ({"partition": -1}, "partition=-1"),
        ({"topic": "not legal!"}, "is not a legal name"),
        ({"topic": ""}, "is not a legal name"),
        ({"topic": ".."}, "is not a legal name"),
        ({"topic": "x" * 250}, "is not a legal name"),
    ],
)
def test_wrong_record_for_an_unknown_topic_is_refused_before_any_wait(
    make: MakeProducer, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        make(max_block_ms=60_000).send(**{"topic": "t", "value": b"v", **arguments})


@pytest.mark.parametrize("topic", [None, 5, ["t"], b"t"])
def test_topic_that_is_no_text_is_refused_by_blocks_too(make: MakeProducer, topic: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="topic must be str"):
        make().send_many(topic, [b"v"])


@pytest.mark.parametrize("timestamp_ms", ["now", 1.5, -1])
def test_wrong_timestamp_is_refused_with_hooks_as_without(make: MakeProducer, timestamp_ms: Any) -> None:
    for options in ({}, {"value_serializer": lambda value: value}):
        producer = make(**options)
        know(producer)
        with pytest.raises(InvalidRecordError, match="timestamp_ms"):
            producer.send("t", b"v", timestamp_ms=timestamp_ms)
        assert len(producer) == 0


def test_any_integer_is_a_partition_with_hooks_as_without(make: MakeProducer) -> None:
    for options in ({}, {"value_serializer": lambda value: value}):
        producer = make(**options)
        know(producer)
        numbers: dict[str, Any] = {"partition": np.int64(1), "timestamp_ms": np.int64(5)}
        future = producer.send("t", b"v", **numbers)
        assert future.partition == 1


@pytest.mark.parametrize(
    ("protocol", "mechanism", "lines"), [("PLAINTEXT", "PLAIN", 1), ("PLAINTEXT", "SCRAM-SHA-256", 0)]
)
def test_password_that_goes_out_unencrypted_is_warned_of_once(
    make: MakeProducer, caplog: pytest.LogCaptureFixture, protocol: str, mechanism: str, lines: int
) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_plain_username": "u", "sasl_plain_password": "p"}
    make(security_protocol=f"SASL_{protocol}", **login)
    assert caplog.text.count("sends the password unencrypted") == lines


def test_flush_of_nothing_returns_whatever_its_timeout(make: MakeProducer) -> None:
    producer = make()
    for timeout in (0, -1, 0.0, None, 5):
        producer.flush(timeout)


def test_flush_that_is_not_over_in_time_raises_and_keeps_the_records(make: MakeProducer) -> None:
    producer = make()
    know(producer)
    producer.send("t", b"v")
    with pytest.raises(TimeoutError, match="no outcome of 1 batch"):
        producer.flush(0.01)
    assert len(producer) == 1


def test_full_buffer_names_who_holds_it(make: MakeProducer) -> None:
    producer = make(buffer_memory=64 << 10, batch_size=16384)
    know(producer)
    with pytest.raises(BufferFullError, match=r"t\[0\] without a leader: \d+ bytes in \d+ batches"):
        fill(producer)
    assert producer.accumulator.pool.waiter_count == 0


def test_block_that_does_not_fit_tells_which_rows_are_queued(make: MakeProducer) -> None:
    producer = make(buffer_memory=64 << 10, batch_size=16384)
    know(producer)
    with pytest.raises(BufferFullError) as caught:
        producer.send_many("t", [b"x" * 10_000] * 20, partition=0)
    result = caught.value.result
    queued = int((result.error_codes == -3).sum())
    assert 0 < queued < 20
    assert list(result.errors) == list(range(queued, 20))


def test_policy_raise_does_not_wait(make: MakeProducer) -> None:
    producer = make(buffer_memory=64 << 10, batch_size=16384, buffer_full_policy="raise", max_block_ms=60_000)
    know(producer)
    with pytest.raises(BufferFullError):
        fill(producer)


def test_close_fails_what_is_left_says_so_once_and_refuses_every_verb(
    make: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make()
    know(producer)
    future = producer.send("t", b"v")
    producer.close(0)
    assert caplog.text.count("1 record not delivered") == 1
    assert isinstance(future.exception(0), ProducerClosedError)
    producer.close()
    producer.close(-5)
    producer.close(float("inf"))
    for call in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send_many("t", [b"v"]),
        lambda: producer.send_columns("t", ([0, 1], b"v")),
        lambda: producer.partitions_for("t"),
        producer.flush,
    ):
        with pytest.raises(ProducerClosedError):
            call()
    assert producer.try_send("t", b"v") is None
    assert producer.accumulator.pool.in_use == 0


@pytest.mark.parametrize("verb", ["send", "send_many", "partitions_for"])
def test_close_ends_a_wait_for_metadata(make: MakeProducer, verb: str) -> None:
    producer = make(max_block_ms=60_000)
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: producer.send("unknown", b"v"),
        "send_many": lambda: producer.send_many("unknown", [b"v"]),
        "partitions_for": lambda: producer.partitions_for("unknown"),
    }
    errors = in_thread(calls[verb], lambda: producer._engine.topic_watch._waiters, lambda: producer.close(0))
    assert [type(error) for error in errors] == [ProducerClosedError]


def test_close_ends_a_wait_for_memory(make: MakeProducer) -> None:
    producer = make(max_block_ms=60_000, buffer_memory=64 << 10, batch_size=16384)
    know(producer)
    pool = producer.accumulator.pool
    errors = in_thread(lambda: fill(producer), lambda: pool.waiter_count, lambda: producer.close(0))
    assert [type(error) for error in errors] == [ProducerClosedError]
    assert (pool.waiter_count, pool.in_use) == (0, 0)


def test_what_the_sender_thread_runs_is_named(make: MakeProducer) -> None:
    producer = make()
    assert ".py:" in producer._engine.describe_work()
    producer.close(0)
    assert producer._engine.describe_work() == "nothing: the thread has ended"


def test_dead_sender_thread_is_the_reason_of_every_refusal(
    make: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make()
    know(producer)
    future = producer.send("t", b"v")
    bug = ZeroDivisionError("a bug")

    def fail(timeout_ms: int) -> Any:
        raise bug

    producer._engine.node_pool.poll = fail  # type: ignore[method-assign, assignment]
    producer._engine.sender.wakeup()
    assert producer._engine.wait_end(10)
    error = future.exception(0)
    assert isinstance(error, ProducerClosedError)
    assert error.__cause__ is bug
    for call in (lambda: producer.send("t", b"v"), producer.flush, lambda: producer.send_many("t", [b"v"])):
        with pytest.raises(ProducerClosedError, match="the sender thread has died: ZeroDivisionError") as caught:
            call()
        assert caught.value.__cause__ is bug
    producer.close()
    assert "the sender thread ends with an error" in caplog.text


def test_leaving_the_with_block_reports_failures_nobody_looked_at(make: MakeProducer) -> None:
    producer = make(delivery_timeout_ms=30, request_timeout_ms=20, linger_ms=0)
    know(producer)

    def work() -> None:
        with producer:
            producer.send("t", b"v")

    with pytest.raises(DeliveryFailedError, match="1 record not delivered") as caught:
        work()
    assert caught.value.failed_count == 1
    assert producer._engine.is_ended


def test_flush_on_the_sender_thread_is_refused(make: MakeProducer) -> None:
    producer = make()
    producer._engine.guard.thread_id = threading.get_ident()
    with pytest.raises(IllegalStateError):
        producer.flush()
    producer._engine.guard.thread_id = producer._host._thread.ident


def test_thread_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    running = dict(_running)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        Producer(bootstrap_servers="127.0.0.1:1")
    assert running == _running


def test_refused_options_start_nothing() -> None:
    threads, running = thread_count(), len(_running)
    wrong: dict[str, Any] = {"linger": "5"}
    with pytest.raises(ConfigError):
        Producer(bootstrap_servers="127.0.0.1:1", **wrong)
    assert (thread_count(), len(_running)) == (threads, running)


def test_producer_is_true_though_nothing_is_queued(make: MakeProducer) -> None:
    producer = make()
    assert producer
    assert len(producer) == 0


def test_reporter_that_fails_is_logged_and_the_producer_goes_on(
    make: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def start(self, source: object) -> None:
            raise OSError("port 9090 is taken")

        def close(self) -> None:
            raise OSError("nothing to close")

    producer = make(metric_reporters=[Broken()], max_block_ms=2000)
    with pytest.raises(BootstrapError):  # the sender thread says so: it runs
        producer.send("t", b"v")
    producer.close(0)
    assert "the metrics reporter" in caplog.text
    assert "Broken does not start" in caplog.text


class Owner:
    """An object whose methods its producer was given."""

    def __init__(self, **options: Any) -> None:
        hooks = {"value_serializer": self.encode, "partitioner": self.choose} | options
        self.producer = Producer(bootstrap_servers="127.0.0.1:1", **hooks)

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def choose(self, topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]) -> int:
        return 0


def test_a_producer_with_methods_of_its_owner_ends_with_its_owner() -> None:
    before = set(_running)
    owner = Owner(key_serializer=lambda key: bytes(key))
    (engine,) = set(_running) - before
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    assert engine.wait_end(10)


def test_the_configuration_has_the_users_code_also_after_new_credentials(make: MakeProducer) -> None:
    def encode(value: Any) -> bytes:
        return bytes(value)

    producer = make(
        value_serializer=encode,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="ann",
        sasl_plain_password="old",
    )
    assert producer.config.value_serializer is encode
    producer.set_sasl_credentials("bob", "new")
    assert producer.config.value_serializer is encode
    assert producer.config.sasl_plain_username == "bob"
    assert producer.config is producer.config
