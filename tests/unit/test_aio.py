"""The threads of an AsyncProducer's blocks: a call has an outcome, also where the thread finds no memory to begin."""

from __future__ import annotations

import _thread
import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkaprod import aio
from tests.support.failing_memory import failing

BOUND_S = 30
POSITIONS = range(40)
"""More than a thread allocates before its call."""


def in_thread(call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(aio._in_thread(call), BOUND_S)

    return asyncio.run(run())


def test_outcome_is_that_of_the_call() -> None:
    assert in_thread(lambda: 5) == 5
    assert in_thread(lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        in_thread(lambda: 1 / 0)


def test_thread_that_cannot_be_started_is_an_error_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        in_thread(lambda: 5)


def test_thread_that_ends_before_its_call_is_an_error_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda call, arguments: 1)  # and lets go of the call
    with pytest.raises(MemoryError, match="thread"):
        in_thread(lambda: 5)


def test_each_allocation_of_a_new_thread_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waits here until the thread has ended, so that what fails fails in the thread or where it is started."""
    start = _thread.start_new_thread
    position = 0

    def start_without_memory(call: Callable[[], None], arguments: tuple[()]) -> int:
        before = _thread._count()
        with failing(position):
            ident = start(call, arguments)
            for _ in range(2000):
                if _thread._count() <= before:
                    break
                time.sleep(0.0005)
        return ident

    monkeypatch.setattr(_thread, "start_new_thread", start_without_memory)
    outcomes = []
    for position in POSITIONS:  # noqa: B007  # start_without_memory reads it
        try:
            outcomes.append(in_thread(lambda: bytes(10)))
        except (MemoryError, RuntimeError, SystemError) as error:  # the last two are the interpreter's own on 3.11
            outcomes.append(type(error))
        gc.collect()
    assert len(outcomes) == len(POSITIONS)
    assert MemoryError in outcomes
    assert bytes(10) in outcomes


def test_cancelled_call_leaves_nothing_behind() -> None:
    may_end = threading.Event()

    async def run() -> None:
        task = asyncio.create_task(aio._in_thread(lambda: may_end.wait(BOUND_S)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_end.set()

    asyncio.run(run())
