"""Records of topics whose metadata is not known yet: produce() never waits for it, as in librdkafka."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kafkaprod.locks import locked
from kafkaprod.threads import apart, make_thread

Job = Callable[[BaseException | None], None]
"""Sends one record; given an error, reports it instead."""
MOST_THREADS: Final = 32  # each waits for one topic: some that do not exist must not keep all others waiting


class Backlog:
    """Keeps records until their topic is known. Thread-safe, also for signal handlers.

    Args:
        learn: Waits for a topic's metadata, or raises.
    """

    def __init__(self, learn: Callable[[str], object]) -> None:
        self._learn = learn
        self._known: set[str] = set()
        self._waiting: dict[str, deque[Job]] = {}
        self._wanted: deque[str] = deque()  # those of them that no thread has begun with
        self._thread_count = 0
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        """Whether a record waits."""
        return bool(self._waiting)

    def keep(self, topic: str, job: Job) -> bool:
        """Keep a record whose topic is not known; False: it is known, send the record now."""
        if topic in self._known:
            return False
        needs_thread = self._wait_for(topic, job)
        if needs_thread:
            try:
                apart(make_thread(self._run, "kafkaprod-metadata").start)
            except RuntimeError as error:  # no more threads
                self._on_no_thread(error)
        return needs_thread is not None

    @locked
    def _wait_for(self, topic: str, job: Job) -> bool | None:
        """Let a record wait for its topic; return whether that needs one more thread. None: the topic is known."""
        if topic in self._known:
            return None
        jobs = self._waiting.get(topic)
        if jobs is not None:
            jobs.append(job)
            return False
        self._waiting[topic] = deque([job])
        self._wanted.append(topic)
        if self._thread_count == MOST_THREADS:
            return False
        self._thread_count += 1
        return True

    @locked
    def drop(self, error: BaseException) -> None:
        """Fail the records that wait now."""
        for jobs in self._waiting.values():
            while jobs:
                jobs.popleft()(error)

    @locked
    def _on_no_thread(self, error: BaseException) -> None:
        """Fail the topics that no other thread will come to."""
        self._thread_count -= 1
        while self._wanted and not self._thread_count:
            self._end(self._wanted.popleft(), error)

    def _run(self) -> None:
        """Learn one wanted topic after the other; send its records in order, or fail them."""
        while (topic := self._next()) is not None:
            error: BaseException | None = None
            try:
                self._learn(topic)
            except Exception as failure:
                error = failure
            self._end(topic, error)

    @locked
    def _next(self) -> str | None:
        """Take a topic to learn; None: there is none, and the thread that asks ends."""
        if not self._wanted:
            self._thread_count -= 1
            return None
        return self._wanted.popleft()

    @locked
    def _end(self, topic: str, error: BaseException | None) -> None:
        """Send the records of a topic, or fail them."""
        for job in self._waiting[topic]:
            job(error)
        del self._waiting[topic]
        if error is None:
            self._known.add(topic)
