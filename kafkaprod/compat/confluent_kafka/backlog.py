"""Records of topics whose metadata is not known yet: produce() never waits for it, as in librdkafka."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kafkaprod.locks import locked
from kafkaprod.threads import apart, make_thread

Job = Callable[[BaseException | None], None]
"""Sends one record; given an error, reports it instead."""


class Backlog:
    """Keeps records until their topic is known. Thread-safe, also for signal handlers.

    Args:
        learn: Waits for a topic's metadata, or raises.
    """

    def __init__(self, learn: Callable[[str], object]) -> None:
        self._learn = learn
        self._known: set[str] = set()
        self._waiting: dict[str, deque[Job]] = {}
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        """Whether a record waits."""
        return bool(self._waiting)

    def keep(self, topic: str, job: Job) -> bool:
        """Keep a record whose topic is not known; False: it is known, send the record now."""
        if topic in self._known:
            return False
        is_first = self._wait_for(topic, job)
        if is_first:
            try:
                apart(make_thread(self._run, f"metadata-of-{topic}", topic).start)
            except RuntimeError as error:  # no more threads
                self._end(topic, error)
        return is_first is not None

    @locked
    def _wait_for(self, topic: str, job: Job) -> bool | None:
        """Let a record wait for its topic; return whether it is the first that does. None: the topic is known."""
        if topic in self._known:
            return None
        jobs = self._waiting.get(topic)
        if jobs is None:
            self._waiting[topic] = deque([job])
            return True
        jobs.append(job)
        return False

    @locked
    def drop(self, error: BaseException) -> None:
        """Fail the records that wait now."""
        for jobs in self._waiting.values():
            while jobs:
                jobs.popleft()(error)

    def _run(self, topic: str) -> None:
        """Learn the topic, then send its records in order, or fail them."""
        error: BaseException | None = None
        try:
            self._learn(topic)
        except Exception as failure:
            error = failure
        self._end(topic, error)

    @locked
    def _end(self, topic: str, error: BaseException | None) -> None:
        """Send the records of a topic, or fail them."""
        for job in self._waiting[topic]:
            job(error)
        del self._waiting[topic]
        if error is None:
            self._known.add(topic)
