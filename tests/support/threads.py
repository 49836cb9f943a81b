"""Threads: functions that begin together, and how many there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
BEGIN_S = 60.0


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run all at once; return what each returned, or raise the first exception of any."""
    barrier = threading.Barrier(len(calls))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            barrier.wait(BEGIN_S)
            results[index] = calls[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(calls))]


def thread_count() -> int:
    """Return how many threads run, but for that of log lines, which comes with a line and goes when it is idle."""
    return sum(thread.name != "kafkaprod-log-lines" for thread in threading.enumerate())
