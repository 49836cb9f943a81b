"""Ctrl-C in every wait: KeyboardInterrupt comes at once, and nobody is left in a line."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.sink import Sink
from kafkaprod import DeliveryFuture, Producer
from kafkaprod.completion import BatchCompletion
from tests.stress.scale import scaled, wait_until

LIMIT_S = 0.1
SLACK_S = 0.4  # a loaded machine may not run the main thread at once


class Stalled:
    """A producer whose broker is stopped after the first record."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.producer = Producer(
            bootstrap_servers=sink.bootstrap, buffer_memory=1 << 20, batch_size=65536, max_block_ms=60_000
        )
        self.engine = self.producer._engine
        self.producer.send("t", b"first").result(20)
        self.accepted = 1
        os.kill(sink.pid, signal.SIGSTOP)
        self.future = self.producer.send("t", b"stalled")
        self.accepted += 1

    def fill(self) -> None:
        while (future := self.producer.try_send("t", b"x" * 50_000)) is not None:
            self.future = future
            self.accepted += 1


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink({"t": 1, "other": 1}) as sink:
        yield sink
        os.kill(sink.pid, signal.SIGCONT)


@pytest.fixture
def stalled(sink: Sink) -> Iterator[Stalled]:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    stalled = Stalled(sink)
    try:
        yield stalled
    finally:
        signal.signal(signal.SIGINT, previous)
        os.kill(sink.pid, signal.SIGCONT)
        stalled.producer.close(20)


def interrupt(call: Callable[[], object], is_waiting: Callable[[], object]) -> float:
    """Send SIGINT once `call` waits; return after how many seconds it raised KeyboardInterrupt."""
    sent: list[float] = []

    def kill() -> None:
        wait_until(is_waiting, "the call waits")
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        call()
    except KeyboardInterrupt:
        took_s = time.monotonic() - sent[0]
    else:
        raise AssertionError("the call returned")
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            killer.join(20)
    return took_s


def assert_nobody_waits(stalled: Stalled) -> None:
    engine = stalled.engine
    assert engine.accumulator.pool.waiter_count == 0
    assert not engine.topic_watch._waiters
    engine.sender.wakeup()
    wait_until(
        lambda: not engine.sender._flushes and not engine.sender._new_flushes, "interrupted flushes are forgotten"
    )


def deliver_all(stalled: Stalled) -> None:
    os.kill(stalled.sink.pid, signal.SIGCONT)
    stalled.producer.flush(20)
    assert stalled.sink.offsets()["t"] == [stalled.accepted]
    assert stalled.engine.accumulator.pool.in_use == 0


def run_interrupts(stalled: Stalled, call: Callable[[], object], is_waiting: Callable[[], object]) -> None:
    for _ in range(scaled(100, 2500)):
        assert interrupt(call, is_waiting) < LIMIT_S + SLACK_S
    assert_nobody_waits(stalled)
    deliver_all(stalled)


def test_ctrl_c_ends_a_wait_for_metadata(stalled: Stalled) -> None:
    watch = stalled.engine.topic_watch
    run_interrupts(stalled, lambda: stalled.producer.send("other", b"x"), lambda: watch._waiters)


def test_ctrl_c_ends_a_wait_for_memory(stalled: Stalled) -> None:
    stalled.fill()
    pool = stalled.engine.accumulator.pool
    run_interrupts(stalled, lambda: stalled.producer.send("t", b"x" * 50_000), lambda: pool.waiter_count)


def test_ctrl_c_ends_a_wait_of_a_block_for_memory(stalled: Stalled) -> None:
    stalled.fill()
    pool = stalled.engine.accumulator.pool
    run_interrupts(stalled, lambda: stalled.producer.send_many("t", [b"x" * 50_000]), lambda: pool.waiter_count)


def test_ctrl_c_ends_a_wait_for_a_result(stalled: Stalled) -> None:
    pending = [each for each in gc.get_objects() if isinstance(each, BatchCompletion) and not each.is_done]
    run_interrupts(stalled, stalled.future.result, lambda: any(each._waiters for each in pending))


def test_ctrl_c_ends_a_flush(stalled: Stalled) -> None:
    sender = stalled.engine.sender
    is_waiting = lambda: any(not flush.is_over for flush in [*sender._flushes])  # noqa: E731
    run_interrupts(stalled, stalled.producer.flush, is_waiting)


def test_ctrl_c_ends_a_close_and_a_later_close_goes_on(stalled: Stalled) -> None:
    producer = stalled.producer
    for _ in range(scaled(50, 2500)):
        assert interrupt(producer.close, lambda: stalled.engine._end_waiters) < LIMIT_S + SLACK_S
    os.kill(stalled.sink.pid, signal.SIGCONT)
    producer.close()
    assert stalled.sink.offsets()["t"] == [stalled.accepted]
    assert stalled.engine.accumulator.pool.in_use == 0


def test_a_storm_of_signals_breaks_nothing(stalled: Stalled) -> None:
    """Signals at any instruction, not only in the waits: the engine goes on, everything accepted has its outcome."""
    os.kill(stalled.sink.pid, signal.SIGCONT)
    producer, engine = stalled.producer, stalled.engine
    wanted = scaled(500, 10_000)
    received = 0
    is_armed = False
    stop = threading.Event()

    def interrupt_work(*_: object) -> None:
        nonlocal is_armed, received
        if is_armed:
            is_armed = False
            received += 1
            raise KeyboardInterrupt

    def storm() -> None:
        while not stop.wait(0.0007):
            os.kill(os.getpid(), signal.SIGINT)

    futures: list[DeliveryFuture] = []
    signal.signal(signal.SIGINT, interrupt_work)
    thread = threading.Thread(target=storm)
    thread.start()
    while received < wanted:
        try:
            is_armed = True
            while True:
                futures.append(producer.send("t", b"x" * 50_000))
                if len(futures) % 7 == 0:
                    producer.flush()
                if len(futures) % 11 == 0:
                    futures[-1].result()
                if len(futures) > 1000:
                    del futures[:]
        except KeyboardInterrupt:
            pass
    stop.set()
    thread.join(20)
    producer.flush(20)
    assert all(future.done() for future in futures)
    assert engine.accumulator.pool.waiter_count == 0
    assert engine.accumulator.pool.in_use == 0
    assert not engine.topic_watch._waiters
    assert engine.sender.fatal_error is None
    started = time.monotonic()
    producer.send("t", b"last").result(20)
    assert time.monotonic() - started < 5, "the sender still hears of news"
