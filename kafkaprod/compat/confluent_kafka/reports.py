"""What waits for poll(): delivery reports and other events, and the count of records that are under way.

The engine's thread adds, the thread that polls takes. There are no locks: a signal handler may produce within any of
this.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kafkaprod import DeliveryFuture
from kafkaprod.clock import monotonic_s
from kafkaprod.compat.confluent_kafka.error import record_error
from kafkaprod.compat.confluent_kafka.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from kafkaprod.results import holders

Report = Callable[..., object]
Event = Callable[[], object]
FOREVER_S: Final = threading.TIMEOUT_MAX


class Unserved:
    """The failures of records whose reports were not polled; how many are left is written when the program ends.

    Attributes:
        failures: One error for each.
    """

    def __init__(self) -> None:
        self.failures: deque[Any] = deque()

    def hand_over(self, timeout_s: float) -> None:
        """Do nothing: the engines have the records themselves."""

    def lost(self) -> str | None:
        """Return how many there are, in a sentence."""
        count = len(self.failures)
        if not count:
            return None
        first = self.failures.popleft()
        self.failures.clear()
        records = "a record" if count == 1 else f"{count} records"
        return f"confluent_kafka: {records} not delivered, and no poll() reported it; the first because: {first}"


UNSERVED: Final = Unserved()
holders.enter(UNSERVED)


class Events:
    """Calls to be made by the thread that polls."""

    def __init__(self) -> None:
        self._queue: deque[Event] = deque()
        self._under_way: deque[None] = deque()  # its length is the count: additions and removals are atomic
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()  # an item or two if there may be an event

    def __len__(self) -> int:
        """Records without an outcome, and events that were not served."""
        return len(self._under_way) + len(self._queue)

    @property
    def under_way(self) -> int:
        """Records without an outcome."""
        return len(self._under_way)

    def add(self, event: Event) -> None:
        """Have `event` called by the next poll. Any thread."""
        self._queue.append(event)
        if self._news.empty():
            self._news.put(None)

    def begin(self) -> None:
        """Count a record that is about to be sent."""
        self._under_way.append(None)

    def end(self, _: object = None) -> None:
        """Uncount a record that has its outcome, or was refused. Any thread."""
        self._under_way.pop()

    def serve(self, timeout_s: float) -> int:
        """Call what is there, waiting for the first at most `timeout_s`; return how many were called.

        What a callback raises comes out; the others stay for the next time.
        """
        if not self._queue and timeout_s > 0:
            self._wait(timeout_s)
        served = 0
        for _ in range(len(self._queue)):
            try:
                event = self._queue.popleft()
            except IndexError:  # another thread polls, too
                break
            served += 1
            event()
        return served

    def _wait(self, timeout_s: float) -> None:
        deadline = monotonic_s() + min(timeout_s, FOREVER_S / 2)
        while not self._queue:
            try:
                self._news.get(timeout=max(deadline - monotonic_s(), 0))
            except queue.Empty:
                return


class Delivery:
    """The report of one record, made when its outcome is there.

    Args:
        events: Where it goes.
        report: The user's callback, of (error, message).
        record: Topic, key, value and headers as they were given.
        only_errors: Whether a delivered record needs no report.
    """

    __slots__ = ("_events", "_only_errors", "_record", "_report", "_started")

    def __init__(
        self, events: Events, report: Report, record: tuple[str, Any, Any, Any], *, only_errors: bool = False
    ) -> None:
        self._events = events
        self._report = report
        self._record = record
        self._only_errors = only_errors
        self._started = monotonic_s()

    def settle(self, future: DeliveryFuture) -> None:
        """Take the outcome. On the engine's thread."""
        error = future.exception(0)
        if error is not None:
            self.fail(error, future.partition)
        elif not self._only_errors:
            self._succeed(future)
        self._events.end()

    def _succeed(self, future: DeliveryFuture) -> None:
        known = future.result(0)
        topic, key, value, headers = self._record
        latency = monotonic_s() - self._started
        kind = (TIMESTAMP_CREATE_TIME, known.timestamp)
        message = Message(topic, known.partition, known.offset, key, value, headers, None, kind, latency)
        report = self._report
        self._events.add(lambda: report(None, message))

    def fail(self, error: BaseException, partition: int = -1) -> None:
        """Report a record that was not delivered, or not even queued."""
        topic, key, value, headers = self._record
        reason = record_error(error)
        message = Message(
            topic,
            partition,
            key=key,
            value=value,
            headers=headers,
            error=reason,
            timestamp=(TIMESTAMP_NOT_AVAILABLE, -1),
            latency=monotonic_s() - self._started,
        )
        report = self._report
        UNSERVED.failures.append(reason)

        def serve() -> None:
            with contextlib.suppress(ValueError):
                UNSERVED.failures.remove(reason)
            report(reason, message)

        self._events.add(serve)
