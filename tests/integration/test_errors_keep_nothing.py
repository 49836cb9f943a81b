"""An error that was raised keeps nothing of who looked at it: no variable of the caller, and no frame of another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import traceback
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.errors import AuthorizationError, KafkaError, copy_to_raise
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.ports import free_ports

BOUND_S = 30
CALLS = 20


class Body:
    """What a request holds, and nothing should hold once the request is over."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker


@pytest.fixture(params=["delivered", "refused", "expired", "unreachable"])
def outcome(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(server: EmbeddedBroker, outcome: str) -> Iterator[EmbeddedBroker]:
    if outcome == "refused":
        server.faults.on("PRODUCE", reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    elif outcome == "expired":
        server.faults.on("PRODUCE", reply_with(ErrorCode.NOT_ENOUGH_REPLICAS))
    try:
        yield server
    finally:
        server.faults.clear()


@pytest.fixture
def options(broker: EmbeddedBroker, outcome: str) -> dict[str, Any]:
    servers = f"127.0.0.1:{free_ports(1)[0]}" if outcome == "unreachable" else broker.bootstrap_servers
    # Short ones only where they have to pass: a busy machine must not make another outcome of the one that is meant.
    limits = {"request_timeout_ms": 100, "delivery_timeout_ms": 150} if outcome in ("expired", "unreachable") else {}
    if outcome == "unreachable":
        limits["max_block_ms"] = 20
    return {"bootstrap_servers": servers, "linger_ms": 0, **limits}


def send_and_get(producer: Producer) -> None:
    future = producer.send("t", b"x")
    future.result(BOUND_S)


def send_and_raise_exception(producer: Producer) -> None:
    future = producer.send("t", b"x")
    error = future.exception(BOUND_S)
    if error is not None:
        raise error


def send_and_raise_in_callback(producer: Producer) -> None:
    called = threading.Event()
    errors: list[Exception | None] = []
    future = producer.send("t", b"x")

    def note(done: DeliveryFuture) -> None:
        errors.append(done.peek_error())
        called.set()

    future.add_done_callback(note)
    assert called.wait(BOUND_S)
    if errors[0] is not None:
        raise errors[0]


def send_and_flush(producer: Producer) -> None:
    future = producer.send("t", b"x")
    producer.flush(BOUND_S)
    assert future.done()


def send_block(producer: Producer) -> None:
    result = producer.send_many("t", [b"x", b"y"])
    result.result(BOUND_S)


def send_block_and_raise_errors(producer: Producer) -> None:
    result = producer.send_many("t", [b"x", b"y"])
    result.wait(BOUND_S)
    for error in result.errors.values():
        raise error


def send_columns(producer: Producer) -> None:
    result = producer.send_columns("t", (np.array([0, 1, 2], dtype=np.int32), b"xy"))
    result.result(BOUND_S)


def send_table(producer: Producer) -> None:
    result = producer.send_table("t", {"value": [b"x", b"y"]})
    result.result(BOUND_S)


def list_partitions(producer: Producer) -> None:
    known = producer.partitions_for("t")
    assert known


def send_to_refused_topic(producer: Producer) -> None:
    producer.send("no such topic", b"x")


CALLS_OF_THREADS = [
    send_and_get,
    send_and_raise_exception,
    send_and_raise_in_callback,
    send_and_flush,
    send_block,
    send_block_and_raise_errors,
    send_columns,
    send_table,
    list_partitions,
    send_to_refused_topic,
]


@pytest.mark.parametrize("call", CALLS_OF_THREADS)
def test_no_call_of_a_thread_keeps_its_callers_variables(
    options: dict[str, Any], call: Callable[[Producer], None]
) -> None:
    bodies: weakref.WeakSet[Body] = weakref.WeakSet()
    with contextlib.suppress(KafkaError), Producer(options) as producer:

        def handle() -> None:
            body = Body()
            bodies.add(body)
            with contextlib.suppress(KafkaError):
                call(producer)

        for _ in range(CALLS // 4):
            handle()
        with ThreadPoolExecutor(4) as pool:
            for _ in range(CALLS):
                pool.submit(handle)
        gc.collect()
        assert len(bodies) == 0


async def await_record(producer: AsyncProducer) -> None:
    future = await producer.send("t", b"x")
    await future


async def send_and_wait(producer: AsyncProducer) -> None:
    await producer.send_and_wait("t", b"x")


async def gather(producer: AsyncProducer) -> None:
    futures = [await producer.send("t", b"x") for _ in range(3)]
    await asyncio.gather(*(producer.send_and_wait("t", b"x") for _ in range(3)), return_exceptions=True)
    await asyncio.wait([asyncio.ensure_future(wait_for(future)) for future in futures])


async def wait_for(future: Any) -> None:
    await future


async def await_block(producer: AsyncProducer) -> None:
    result = await producer.send_many("t", [b"x", b"y"])
    await result


async def flush(producer: AsyncProducer) -> None:
    future = await producer.send("t", b"x")
    await producer.flush(BOUND_S)
    assert future.done()


async def partitions(producer: AsyncProducer) -> None:
    known = await producer.partitions_for("t")
    assert known


@pytest.mark.parametrize("call", [await_record, send_and_wait, gather, await_block, flush, partitions])
def test_no_call_of_a_task_keeps_its_callers_variables(
    options: dict[str, Any], call: Callable[[AsyncProducer], Awaitable[None]]
) -> None:
    bodies: weakref.WeakSet[Body] = weakref.WeakSet()

    async def run() -> None:
        async with AsyncProducer(options) as producer:

            async def handle() -> None:
                body = Body()
                bodies.add(body)
                with contextlib.suppress(KafkaError):
                    await call(producer)

            for _ in range(CALLS // 4):
                await handle()
            await asyncio.gather(*(handle() for _ in range(CALLS)))
            deadline_s = time.monotonic() + BOUND_S
            while len(bodies) and time.monotonic() < deadline_s:  # threads and the loop let go of what they have run
                await asyncio.sleep(0)
                gc.collect()
            assert len(bodies) == 0

    with contextlib.suppress(KafkaError):
        asyncio.run(run())


@pytest.mark.parametrize("outcome", ["refused"], indirect=True)
def test_each_look_at_a_record_of_a_failed_batch_has_a_traceback_of_its_own(options: dict[str, Any]) -> None:
    with Producer({**options, "linger_ms": 20}) as producer:
        futures = [producer.send("t", b"x") for _ in range(300)]
        lengths, errors = set(), []
        for future in futures:
            with pytest.raises(AuthorizationError) as caught:
                future.result(BOUND_S)
            lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
            errors.append(caught.value)
    assert len(lengths) == 1
    assert len({id(error) for error in errors}) == len(futures)
    assert {str(error) for error in errors} == {str(errors[0])}


@pytest.mark.parametrize("outcome", ["refused"], indirect=True)
def test_a_producer_ends_with_the_function_that_made_it_though_its_record_failed(options: dict[str, Any]) -> None:
    def task() -> None:
        producer = Producer(options)
        future = producer.send("t", b"x")
        with contextlib.suppress(AuthorizationError):
            future.result(BOUND_S)

    def senders() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("kafkaprod-") and thread.daemon}

    before = senders()
    for _ in range(5):
        task()
    gc.collect()
    for thread in senders() - before:
        thread.join(BOUND_S)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "error",
    [
        AuthorizationError("no", code=29, topic="t"),
        KafkaError("no"),
        OSError(5, "no"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "no"),
    ],
)
def test_a_copy_says_the_same_with_the_same_cause_and_notes_of_its_own(error: Exception) -> None:
    error.__cause__ = ValueError("why")
    error.add_note("first")
    copy = copy_to_raise(error)
    copy.add_note("second")
    assert type(copy) is type(error)
    assert (str(copy), copy.args, copy.__cause__) == (str(error), error.args, error.__cause__)
    assert copy.__suppress_context__
    assert getattr(copy, "context", None) == getattr(error, "context", None)
    assert error.__notes__ == ["first"]


def test_a_copy_of_an_error_that_cannot_be_copied_is_that_error() -> None:
    class Stubborn(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(one)

    error = Stubborn("one", "two")
    assert copy_to_raise(error) is error
