"""Records that find no memory with `buffer_full_policy="drop"`: each fails at once, is counted, and the log says so.

For programs that must never wait, and can rather do without a record: metrics, clicks, log lines. Any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kafkaprod._core.queues.completion import DeliveryFuture, refused_record
from kafkaprod.engine.engine import Engine
from kafkaprod.errors import BufferFullError
from kafkaprod.text import counted

LINE_MS: Final = 1000  # between two lines of the log

logger = logging.getLogger(__name__)


class Drops:
    """Makes the outcome of records that are dropped.

    Args:
        engine: Its memory is full; its metrics count.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._errors: tuple[int, dict[str, BufferFullError]] = (0, {})  # until when they hold, by topic
        self._since_line = 0  # records; threads may lose a few of each other's here: the metric has the exact number
        self._next_line_ms = 0

    def error_for(self, topic: str, make_error: Callable[[], BufferFullError]) -> BufferFullError:
        """Return why records of a topic are dropped now: one error a second, as its text takes longer than a record."""
        now_ms = self._engine.clock.now_ms()
        until_ms, errors = self._errors
        if now_ms >= until_ms:
            errors = {}
            self._errors = (now_ms + LINE_MS, errors)
        error = errors.get(topic)
        if error is None:
            error = errors[topic] = make_error()
        return error

    def drop(self, error: BufferFullError, topic: str, partition: int | None) -> DeliveryFuture:
        """Return the result of a record that was dropped."""
        self.note(error, 1)
        return refused_record(self._engine.results, topic, -1 if partition is None else partition, error)

    def note(self, error: BufferFullError, record_count: int) -> None:
        """Count records that were dropped."""
        now_ms = self._engine.clock.now_ms()
        self._engine.metrics.add_refused_records(record_count, now_ms)
        self._since_line += record_count
        if now_ms >= self._next_line_ms:
            self._next_line_ms = now_ms + LINE_MS
            count, self._since_line = self._since_line, 0
            logger.warning("%s dropped: %s", counted(count, "record"), error)
