"""KafkaHandler: log lines as records, without ever making the program that logs wait.

A line is put into a bounded queue, and a thread sends what is in it; what finds no place is counted and dropped. Lines
of kafkaprod itself are not taken: one about a record that failed would become a record, which fails. So the handler
may be the root logger's, also for the sender thread, which must not wait for what only it can do.

Queue, thread and a producer of its own belong to one process: a forked child begins with new ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import weakref
from typing import Any, Final, Protocol

import kafkaprod
from kafkaprod.clock import monotonic_s
from kafkaprod.errors import ConfigError, InvalidRecordError
from kafkaprod.results import holders
from kafkaprod.text import counted
from kafkaprod.threads import make_thread

CAPACITY: Final = 10_000
CLOSE_S: Final = 5.0
LOOK_S: Final = 0.1  # between looks at whether the thread still runs
_OWN: Final = "kafkaprod"


class LineProducer(Protocol):
    """What the handler needs of a `Producer`."""

    def send(self, topic: str, value: bytes) -> object:
        """Queue a record; may wait."""
        ...


class KafkaHandler(logging.Handler):
    """Sends log lines to a topic. Thread-safe.

    Give it a formatter for the value; its text is encoded as UTF-8. What waits when the program ends, or when the
    producer flushes or closes, is given to the producer first; how many lines were dropped is written to stderr at the
    end. In programs that fork, as servers do that load the application before, give it options: each process then makes
    a producer of its own at its first line. In dictConfig: `{"class": "kafkaprod.hooks.log_handler.KafkaHandler",
    "topic": "logs", "bootstrap_servers": "localhost:9092"}`.

    Args:
        producer: Its records are those of the handler, too: flush() and close() count them. Or the topic, if options
            are given.
        topic: Where the lines go.
        capacity: How many lines may wait to be given to the producer.
        options: Those of a producer of its own.

    Attributes:
        dropped_count: The lines that were dropped: the queue was full, or the producer refused them.

    Raises:
        InvalidRecordError: The capacity is no number above 0.
        ConfigError: There are neither a producer nor options, or both, or an option is wrong.
    """

    def __init__(
        self,
        producer: LineProducer | str | None = None,
        topic: str | None = None,
        capacity: int = CAPACITY,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(producer, str):
            producer, topic = None, producer
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise InvalidRecordError(f"capacity={capacity!r} must be a number of lines above 0")
        if (producer is None) == (not options) or topic is None:
            raise ConfigError(
                "KafkaHandler needs a topic, and a producer or the options of one: KafkaHandler(producer, 'logs') or "
                "KafkaHandler('logs', bootstrap_servers='localhost:9092')"
            )
        if options:
            kafkaprod.ProducerConfig.from_options(**options)  # raises now what is wrong with them
        self.dropped_count = 0
        self._reported_count = 0
        self._last_error: Exception | None = None
        self._given = producer
        self._options = options
        self._topic = topic
        self._capacity = capacity
        self._is_closed = False
        self._begin()
        _handlers.add(self)
        holders.enter(self, producer)

    def _begin(self) -> None:
        """Begin in this process, without a line."""
        self._lines: queue.Queue[bytes | queue.SimpleQueue[None] | None] = queue.Queue(self._capacity)
        self._thread: threading.Thread | None = None
        self._producer: Any = self._given

    def _begin_in_child(self) -> None:
        """Begin in a forked child: what waits is the parent's, whose thread sends it."""
        self._begin()
        self.dropped_count = self._reported_count = 0
        self._last_error = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line; never waits."""
        if self._is_closed or record.name.partition(".")[0] == _OWN:
            return
        try:
            line = self.format(record).encode(errors="backslashreplace")
            if self._thread is None:  # guarded by the handler's lock, as all of emit() is
                _end_with_child_process(self)
                thread = make_thread(self._send_all, "kafkaprod-log-handler", self._lines)
                thread.start()
                self._thread = thread
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped_count += 1
        except Exception:
            self.dropped_count += 1
            self.handleError(record)

    def hand_over(self, timeout_s: float) -> None:
        """Give the producer what waits now, waiting for that no longer than `timeout_s` seconds."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        end_s = monotonic_s() + timeout_s
        reached: queue.SimpleQueue[None] = queue.SimpleQueue()
        try:
            self._lines.put(reached, timeout=timeout_s)
        except queue.Full:
            return
        while thread.is_alive() and monotonic_s() < end_s:
            with contextlib.suppress(queue.Empty):
                return reached.get(timeout=LOOK_S)

    def lost(self) -> str | None:
        """Return how many lines were dropped since the last call, in a sentence; None: not one."""
        waiting = 0 if self._thread is None or self._is_closed else self._lines.qsize()
        count = self.dropped_count + waiting - self._reported_count
        if count <= 0:
            return None
        self._reported_count += count
        why = "" if self._last_error is None else f": {self._last_error}"
        return f"KafkaHandler: {counted(count, 'line')} for topic {self._topic!r} dropped{why}"

    def close(self) -> None:
        """Give the producer what waits, for 5 s at most; lines that come later are not taken."""
        was_closed, self._is_closed = self._is_closed, True
        if self._thread is not None:
            try:
                self._lines.put(None, timeout=CLOSE_S)
            except queue.Full:
                self.dropped_count += self._lines.qsize()
            else:
                self._thread.join(CLOSE_S)
        if self._producer is not None and self._given is None:
            try:
                self._producer.close(CLOSE_S)
            except Exception as error:
                self._last_error = error
        if not was_closed:
            holders.say_loss(self)
        super().close()

    def _send_all(self, lines: queue.Queue[bytes | queue.SimpleQueue[None] | None]) -> None:
        while (line := lines.get()) is not None:
            if isinstance(line, queue.SimpleQueue):
                line.put(None)
                continue
            try:
                if self._producer is None:
                    self._producer = kafkaprod.Producer(self._options)
                self._producer.send(self._topic, line)
            except Exception as error:  # whatever it is: the next line may pass
                self.dropped_count += 1
                self._last_error = error


_handlers: weakref.WeakSet[KafkaHandler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for handler in list(_handlers):
        handler._begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _end_with_child_process(handler: KafkaHandler) -> None:
    """Have the handler closed at the end of a process of multiprocessing, which runs no exit hooks of Python's."""
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    util.Finalize(handler, _close_own, args=(weakref.ref(handler),), exitpriority=0)


def _close_own(reference: weakref.ref[KafkaHandler]) -> None:
    handler = reference()
    if handler is not None:
        handler.close()
