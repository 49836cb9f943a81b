"""KafkaHandler: log lines as records, without ever making the program that logs wait.

A line is put into a bounded queue, and a thread sends what is in it; what finds no place is counted and dropped. Lines
of kafkaprod itself are not taken: one about a record that failed would become a record, which fails. So the handler
may be the root logger's, also for the sender thread, which must not wait for what only it can do.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Final, Protocol

from kafkaprod.errors import InvalidRecordError, KafkaError
from kafkaprod.threads import make_thread

CAPACITY: Final = 10_000
CLOSE_S: Final = 5.0
_OWN: Final = "kafkaprod"


class LineProducer(Protocol):
    """What the handler needs of a `Producer`."""

    def send(self, topic: str, value: bytes) -> object:
        """Queue a record; may wait."""
        ...


class KafkaHandler(logging.Handler):
    """Sends log lines to a topic. Thread-safe.

    Give it a formatter for the value; its text is encoded as UTF-8. Close it before the producer: logging.shutdown(),
    which runs when a program ends, does so.

    Args:
        producer: Its records are those of the handler, too: flush() and close() count them.
        topic: Where the lines go.
        capacity: How many lines may wait to be given to the producer.

    Attributes:
        dropped_count: The lines that were dropped: the queue was full, or the producer refused them.

    Raises:
        InvalidRecordError: The capacity is no number above 0.
    """

    def __init__(self, producer: LineProducer, topic: str, capacity: int = CAPACITY) -> None:
        super().__init__()
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise InvalidRecordError(f"capacity={capacity!r} must be a number of lines above 0")
        self.dropped_count = 0
        self._producer = producer
        self._topic = topic
        self._lines: queue.Queue[bytes | None] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line; never waits."""
        if self._is_closed or record.name.partition(".")[0] == _OWN:
            return
        try:
            line = self.format(record).encode(errors="backslashreplace")
            if self._thread is None:  # guarded by the handler's lock, as all of emit() is
                thread = make_thread(self._send_all, "kafkaprod-log-handler")
                thread.start()
                self._thread = thread
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped_count += 1
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Give the producer what waits, for 5 s at most; lines that come later are not taken."""
        self._is_closed = True
        if self._thread is not None:
            try:
                self._lines.put(None, timeout=CLOSE_S)
            except queue.Full:
                self.dropped_count += self._lines.qsize()
            else:
                self._thread.join(CLOSE_S)
        super().close()

    def _send_all(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._producer.send(self._topic, line)
            except (KafkaError, ValueError, MemoryError):
                self.dropped_count += 1
