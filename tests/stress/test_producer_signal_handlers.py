"""Signal handlers that use the producer, whatever they interrupt: no deadlock, no wait for what cannot come.

A signal may come between any two instructions of the main thread. Here a trace function stands in for it: it runs
the handler before a chosen line of the package, on top of the interrupted call, as the interpreter would. A sample of
the lines by default; with KAFKAPROD_STRESS=full all bytecodes, up to a number.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from benchmarks.sink import Sink
from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import create_topic
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import DeliveryFailedError, ProducerClosedError
from tests.stress.interruption import Interruption
from tests.stress.scale import scaled

WAIT_S = 20.0  # a deadlock takes longer; nothing else here takes a second
POINTS = scaled(20, 1500)  # to interrupt a call at
TOPIC_NAMES = [f"topic-{number}" for number in range(3 * POINTS)]
Use = Callable[[Producer], Any]


def send_and_flush(producer: Producer) -> None:
    producer.send("t", b"v")
    producer.flush(WAIT_S)


def in_other_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """As a handler does that waits for its workers: the call happens in a thread, which is joined."""

    def run() -> None:
        errors: list[BaseException] = []

        def target() -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the thread hangs"
        if errors:
            raise errors[0]

    return run


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Sink({"t": 2} | dict.fromkeys(TOPIC_NAMES, 1)) as sink:
        yield sink.bootstrap


@pytest.fixture(scope="module")
def refusing_servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"t": 2}) as broker:
        config = ProducerConfig.from_options({"bootstrap_servers": broker.bootstrap_servers})
        with ClusterClient(config) as client:
            create_topic(client, "refusing", options={"max.message.bytes": "100"})
        yield broker.bootstrap_servers


class FailingInterceptor:
    """Fails on both sides; its failures are counted."""

    def on_send(self, record: Any) -> Any:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        raise RuntimeError("on_acknowledgement")


def make_producer(servers: str, **options: Any) -> Producer:
    producer = Producer(bootstrap_servers=servers, buffer_memory=100_000, batch_size=50_000, **options)
    producer.send("t", b"the topic is known")
    producer.flush(WAIT_S)
    return producer


def options_for(interrupted: str) -> dict[str, Any]:
    return {"interceptors": [FailingInterceptor()]} if interrupted == INTERCEPTED else {}


def unknown_topic(producer: Producer) -> str:
    return next(name for name in TOPIC_NAMES if name not in producer.accumulator.topics)


def use_all(producer: Producer) -> None:
    """What a handler may do, and every wait there is."""
    assert producer.send("t", b"from the handler").result(WAIT_S).offset >= 0
    producer.send("t", b"and flushed")
    producer.flush(WAIT_S)
    assert producer.partitions_for(unknown_topic(producer)) == {0}
    producer.metrics()


def use_failures(producer: Producer) -> None:
    """Likewise, where records fail."""
    assert producer.send("refusing", bytes(200)).exception(WAIT_S) is not None
    flush_failures(producer)


def await_records(producer: Producer) -> None:
    async def wait() -> None:
        await producer.send("t", b"v")
        await producer.send_many("t", [b"v"] * 3)

    asyncio.run(wait())


def fill_buffer(producer: Producer) -> None:
    for _ in range(4):
        producer.send("t", bytes(40_000))


def flush_failures(producer: Producer) -> None:
    producer.send("refusing", bytes(200))
    with contextlib.suppress(DeliveryFailedError):
        producer.flush(WAIT_S)


INTERCEPTED = "send to an unknown topic, interceptors fail"
# send() to a known topic is not among them: it runs no Python code that could be interrupted.
INTERRUPTED: dict[str, Use] = {
    INTERCEPTED: lambda producer: producer.send(unknown_topic(producer), b"v"),
    "send to an unknown topic": lambda producer: producer.send(unknown_topic(producer), b"v"),
    "send with a full buffer": fill_buffer,
    "result": lambda producer: producer.send("t", b"v").result(WAIT_S),
    "await": await_records,
    "send_many": lambda producer: producer.send_many("t", [b"v"] * 9).result(WAIT_S),
    "send_table": lambda producer: producer.send_table("t", {"value": [b"v"] * 9}).result(WAIT_S),
    "flush": send_and_flush,
    "partitions_for": lambda producer: producer.partitions_for(unknown_topic(producer)),
    "metrics": lambda producer: producer.metrics(),
}
INTERRUPTED_FAILURES: dict[str, Use] = {
    "exception": lambda producer: producer.send("refusing", bytes(200)).exception(WAIT_S),
    "flush": flush_failures,
}


def points(call: Callable[[], Any]) -> range:
    """Where to interrupt the call, which is made once to see how long it is."""
    dry_run = Interruption()
    dry_run.run(call)
    assert dry_run.count > 5
    return range(0, dry_run.count, -(-dry_run.count // POINTS))


def interrupt_everywhere(producer: Producer, call: Use, handler: Callable[[], None]) -> None:
    for at in points(partial(call, producer)):
        Interruption(handler, at).run(partial(call, producer))
        with contextlib.suppress(DeliveryFailedError):
            producer.flush(WAIT_S)
    assert producer.accumulator.pool.waiter_count == 0
    producer.close(WAIT_S)
    assert producer.accumulator.pool.in_use == 0


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("interrupted", INTERRUPTED)
def test_handler_uses_the_producer_amid_any_other_use(servers: str, interrupted: str, in_thread: bool) -> None:
    with make_producer(servers, **options_for(interrupted)) as producer:
        use = partial(use_all, producer)
        interrupt_everywhere(producer, INTERRUPTED[interrupted], in_other_thread(use) if in_thread else use)


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("interrupted", INTERRUPTED_FAILURES)
def test_handler_hears_of_failures_amid_other_failures(
    refusing_servers: str, interrupted: str, in_thread: bool
) -> None:
    with make_producer(refusing_servers) as producer:
        use = partial(use_failures, producer)
        interrupt_everywhere(producer, INTERRUPTED_FAILURES[interrupted], in_other_thread(use) if in_thread else use)


@pytest.mark.parametrize("interrupted", [*INTERRUPTED, "close"])
def test_handler_closes_the_producer_amid_any_use(servers: str, interrupted: str) -> None:
    call = INTERRUPTED.get(interrupted, lambda producer: producer.close(WAIT_S))
    options = options_for(interrupted)
    with make_producer(servers, **options) as producer:
        chosen = points(partial(call, producer))
    for at in chosen:
        producer = make_producer(servers, **options)
        with contextlib.suppress(ProducerClosedError, DeliveryFailedError):
            Interruption(partial(producer.close, WAIT_S), at).run(partial(call, producer))
        producer.close(WAIT_S)
        assert producer.accumulator.incomplete_batch_count == 0
        assert producer.accumulator.pool.in_use == 0


def test_real_signals_may_use_the_producer_at_any_instant(servers: str) -> None:
    """The kernel's signals and not a trace function's; where they hit is left to chance."""
    handled = 0
    with make_producer(servers) as producer:

        def handle(*_: object) -> None:
            nonlocal handled
            producer.send("t", b"from the handler").result(WAIT_S)
            producer.flush(WAIT_S)
            handled += 1

        stop = threading.Event()

        def storm() -> None:
            while not stop.wait(0.001):
                os.kill(os.getpid(), signal.SIGUSR1)

        previous = signal.signal(signal.SIGUSR1, handle)
        thread = threading.Thread(target=storm)
        thread.start()
        try:
            while handled < scaled(100, 10_000):
                producer.send("t", b"v")
                producer.send("t", b"v").result(WAIT_S)
                producer.flush(WAIT_S)
                producer.metrics()
        finally:
            stop.set()
            thread.join()
            signal.signal(signal.SIGUSR1, previous)
