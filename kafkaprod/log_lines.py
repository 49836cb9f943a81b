"""What a producer's own threads log, given to the handlers by another thread.

A handler may be the user's: it may send by this very producer, or wait for a lock that a caller of `send()` holds while
it waits for the sender thread. So the threads of this package only queue their lines; a thread that nothing waits for
takes them to the handlers. It ends when nothing comes for a second. A line that is logged while another one is given to
the handlers, as by a handler whose `send()` fails, is left out: it would make one line after the other.

Lines of other threads go to the handlers at once, as those of any library do.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import Final

from kafkaprod.threads import is_own_thread, is_program_ending, make_thread

CAPACITY: Final = 1_000
IDLE_S: Final = 1.0
PATIENCE_S: Final = 0.5  # of close(): its caller may hold what a handler waits for

LOGGERS: Final = (  # of all modules that a producer's threads run
    "kafkaprod.compat.aiokafka.producer",
    "kafkaprod.compat.confluent_kafka.aio",
    "kafkaprod.compat.confluent_kafka.producer",
    "kafkaprod.compat.kafka_python.future",
    "kafkaprod.compat.kafka_python.producer.kafka",
    "kafkaprod.config",
    "kafkaprod.engine.answers",
    "kafkaprod.engine.engine",
    "kafkaprod.engine.identity",
    "kafkaprod.engine.loop",
    "kafkaprod.engine.node_states",
    "kafkaprod.engine.outages",
    "kafkaprod.engine.parking",
    "kafkaprod.engine.sending",
    "kafkaprod.engine.telemetry",
    "kafkaprod.engine.upkeep",
    "kafkaprod.hooks.interceptors",
    "kafkaprod.intake.drops",
    "kafkaprod.marks",
    "kafkaprod.metadata",
    "kafkaprod.metrics",
    "kafkaprod.net",
    "kafkaprod.producer",
    "kafkaprod.results.batch",
    "kafkaprod.results.record_wait",
    "kafkaprod.security",
    "kafkaprod.spool",
)

logger = logging.getLogger("kafkaprod.producer")
_Done = queue.SimpleQueue[None]


class OwnLines(logging.Filter):
    """A filter of loggers, which gives their lines to the handlers itself. Thread-safe; takes no lock.

    Args:
        capacity: How many lines may wait.

    Attributes:
        dropped_count: The lines that found no place.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        super().__init__()
        self.dropped_count = 0
        self._reported_count = 0
        self._capacity = capacity
        self._local = threading.local()
        self.forget()

    def forget(self) -> None:
        """Begin without lines and without a thread: after fork() in the child."""
        self._lines: queue.SimpleQueue[logging.LogRecord | _Done] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the logger gives the line to its handlers; if not, that was done here, or will be."""
        given = getattr(self._local, "given", None)
        if given is record:
            return True
        if given is None:
            (self._put if is_own_thread() else self._give)(record)
        return False

    def flush(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the lines that wait now were given to the handlers."""
        if self._lines.empty() and self._thread is None:
            return
        done: _Done = queue.SimpleQueue()
        self._lines.put(done)
        if not self._has_thread():
            self._give_all()
        try:
            done.get(timeout=timeout_s)
        except queue.Empty:
            return

    def _put(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= self._capacity:
            self.dropped_count += 1
            return
        self._lines.put(record)
        if not self._has_thread() and is_program_ending():
            self._give_all()  # no thread can be started any more, and none waits for another

    def _has_thread(self) -> bool:
        """Start the thread if there is none; return whether there is one. Two at a time do no harm."""
        if self._thread is None:
            thread = make_thread(self._run, "kafkaprod-log-lines")
            try:
                thread.start()
            except RuntimeError:  # the next line tries again
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            try:
                self._take(self._lines.get(timeout=IDLE_S))
            except queue.Empty:
                self._report_dropped()
                self._thread = None
                if self._lines.empty():
                    return
                self._thread = threading.current_thread()  # who put that may have seen this one

    def _report_dropped(self) -> None:
        count = self.dropped_count - self._reported_count
        if count:
            self._reported_count += count
            logger.warning("%d log lines of kafkaprod were dropped: the handlers are slower than they came", count)

    def _give_all(self) -> None:
        while not self._lines.empty():
            self._take(self._lines.get())

    def _take(self, line: logging.LogRecord | _Done) -> None:
        if isinstance(line, logging.LogRecord):
            self._give(line)
        else:
            line.put(None)

    def _give(self, record: logging.LogRecord) -> None:
        self._local.given = record
        try:
            _handle(record)
        except Exception:  # of the user's filter or handler
            if not is_own_thread():
                raise
        finally:
            self._local.given = None


def _handle(record: logging.LogRecord) -> None:
    """Do what the logger's handle() does. That one takes no line from within a filter on CPython 3.13.4 and 3.13.5."""
    owner = logging.getLogger(record.name)
    passed: bool | logging.LogRecord = owner.filter(record)
    if passed:
        owner.callHandlers(passed if isinstance(passed, logging.LogRecord) else record)


own_lines: Final = OwnLines()


def install() -> None:
    """Let `own_lines` have what the modules of a producer log."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(own_lines)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=own_lines.forget)
