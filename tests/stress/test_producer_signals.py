"""Ctrl-C in every wait: KeyboardInterrupt comes at once, and nobody is left in a line."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from kafkaprod import Column, DeliveryFuture, Producer
from kafkaprod.results.batch import BatchCompletion
from tests.stress.interrupts import LIMIT_S, SLACK_S, Stalled, interrupt, show
from tests.stress.scale import scaled, wait_until


def assert_nobody_waits(stalled: Stalled) -> None:
    engine = stalled.engine
    assert engine.accumulator.pool.waiter_count == 0
    assert not engine.topic_watch._waiters
    engine.sender.wakeup()
    wait_until(lambda: not engine.sender.waiting_flushes, "interrupted flushes are forgotten")


def is_waited_for() -> bool:
    return any(each._waiters for each in gc.get_objects() if isinstance(each, BatchCompletion))


def deliver_all(stalled: Stalled) -> None:
    os.kill(stalled.sink.pid, signal.SIGCONT)
    stalled.producer.flush(20)
    assert stalled.sink.offsets()["t"] == [stalled.accepted]
    assert stalled.engine.accumulator.pool.in_use == 0


def run_interrupts(stalled: Stalled, call: Callable[[], object], is_waiting: Callable[[], object]) -> None:
    took_s = [interrupt(call, is_waiting) for _ in range(scaled(30, 2500))]
    show(took_s)
    assert max(took_s) < LIMIT_S + SLACK_S
    assert_nobody_waits(stalled)
    deliver_all(stalled)


ROW = b"x" * 50_000  # two do not fit where one does not
FOR_METADATA: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("other", b"v"),
    "send_many": lambda producer: producer.send_many("other", [b"v"]),
    "send_columns": lambda producer: producer.send_columns("other", Column.from_list([b"v"])),
    "send_table": lambda producer: producer.send_table("other", {"value": [b"v"]}),
    "partitions_for": lambda producer: producer.partitions_for("other"),
}
FOR_MEMORY: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("t", ROW),
    "send_many": lambda producer: producer.send_many("t", [ROW]),
    "send_columns": lambda producer: producer.send_columns("t", Column.from_list([ROW])),
    "send_table": lambda producer: producer.send_table("t", {"value": [ROW]}),
}
FOR_OUTCOME: dict[str, Callable[[Stalled], object]] = {
    "result": lambda stalled: stalled.future.result(),
    "result with a timeout": lambda stalled: stalled.future.result(60),
    "exception": lambda stalled: stalled.future.exception(),
    "result of a block": lambda stalled: stalled.block.result(),
    "result of a table": lambda stalled: stalled.table.result(),
}


@pytest.mark.parametrize("verb", FOR_METADATA)
def test_ctrl_c_ends_a_wait_for_metadata(stalled: Stalled, verb: str) -> None:
    watch = stalled.engine.topic_watch
    run_interrupts(stalled, lambda: FOR_METADATA[verb](stalled.producer), lambda: watch._waiters)


@pytest.mark.parametrize("verb", FOR_METADATA)
def test_ctrl_c_ends_a_wait_for_the_first_broker(ctrl_c: None, verb: str) -> None:
    """It takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        producer = Producer(bootstrap_servers=f"127.0.0.1:{listener.getsockname()[1]}")
        watch = producer._engine.topic_watch
        took_s = [interrupt(lambda: FOR_METADATA[verb](producer), lambda: watch._waiters) for _ in range(10)]
        show(took_s)
        assert max(took_s) < LIMIT_S + SLACK_S
        assert not watch._waiters
        producer.close(0)


@pytest.mark.parametrize("verb", FOR_MEMORY)
def test_ctrl_c_ends_a_wait_for_memory(stalled: Stalled, verb: str) -> None:
    stalled.fill()
    pool = stalled.engine.accumulator.pool
    run_interrupts(stalled, lambda: FOR_MEMORY[verb](stalled.producer), lambda: pool.waiter_count)


@pytest.mark.parametrize("verb", FOR_OUTCOME)
def test_ctrl_c_ends_a_wait_for_an_outcome(stalled: Stalled, verb: str) -> None:
    run_interrupts(stalled, lambda: FOR_OUTCOME[verb](stalled), is_waited_for)


def test_ctrl_c_ends_a_flush(stalled: Stalled) -> None:
    sender = stalled.engine.sender
    is_waiting = lambda: sender.waiting_flushes  # noqa: E731
    run_interrupts(stalled, stalled.producer.flush, is_waiting)


def test_ctrl_c_ends_a_close_and_a_later_close_goes_on(stalled: Stalled) -> None:
    producer = stalled.producer
    took_s = [interrupt(producer.close, lambda: stalled.engine._end_waiters) for _ in range(scaled(50, 2500))]
    show(took_s)
    assert max(took_s) < LIMIT_S + SLACK_S
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

    def work() -> None:
        futures.append(producer.send("t", b"x" * 50_000))
        if len(futures) % 7 == 0:
            producer.flush()
        if len(futures) % 11 == 0:
            futures[-1].result()
        if len(futures) > 1000:
            del futures[:]

    futures: list[DeliveryFuture] = []
    signal.signal(signal.SIGINT, interrupt_work)
    thread = threading.Thread(target=storm)
    thread.start()
    while received < wanted:
        try:
            is_armed = True
            while True:
                work()  # called: CPython 3.14 leaves the jump behind an `if` that ends a loop out of the `try`
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
    assert time.monotonic() - started < 15, "the sender still hears of news"
