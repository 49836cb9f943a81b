"""Records whose topic is not known yet, from callers that must not wait: delivery callbacks, and produce() of compat.

They wait here until the metadata is there, or max_block_ms has passed, as a call that waits would. Any thread adds; the
sender thread takes. There is no lock: a signal handler may park a record between any two lines.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod.clock import Clock
from kafkaprod.engine.steps import MakeWaiter, Steps
from kafkaprod.engine.topic_watch import TopicWaiter, TopicWatch
from kafkaprod.errors import BufferFullError, KafkaError, MetadataTimeoutError, NodeBufferFullError, copy_to_raise

LOOK_MS: Final = 50  # between tries to append a record that finds no memory
LONGEST_WAIT_MS: Final = 1000
WAIT_S: Final = 0.25  # of a flush, between looks at what is parked

logger = logging.getLogger("kafkaprod.engine.parking")


class ParkedRecord:
    """A record that waits.

    Attributes:
        size: Bytes that it holds, about.
        send: Appends it; returns False if there is no memory now. Called on the sender thread, once the topic is known.
        fail: Takes the error of a record that is not appended.
        deadline_ms: When it gives up, monotonic.
        serial: Its place among all that were ever parked.
    """

    __slots__ = ("deadline_ms", "fail", "send", "serial", "size")

    def __init__(
        self, size: int, send: Callable[[], bool], fail: Callable[[Exception], None], deadline_ms: int, serial: int
    ) -> None:
        self.size = size
        self.send = send
        self.fail = fail
        self.deadline_ms = deadline_ms
        self.serial = serial


class _Line:
    """The parked records of one topic, or of one partition that is not there yet, in order."""

    def __init__(self, entry: TopicWaiter) -> None:
        self.entry = entry
        self.records: deque[ParkedRecord] = deque()


class Parking:
    """The parked records of one producer.

    Args:
        accumulator: Its `topics` are known; its pool says how much may be parked.
        watch: Requests topics, and says why one does not come.
        clock: Measures deadlines.
        max_block_ms: How long a record waits.
        wakeup: Wakes the sender.
    """

    def __init__(
        self, accumulator: Accumulator, watch: TopicWatch, clock: Clock, max_block_ms: int, wakeup: Callable[[], None]
    ) -> None:
        self._accumulator = accumulator
        self._watch = watch
        self._clock = clock
        self._max_block_ms = max_block_ms
        self._wakeup = wakeup
        self._serials = itertools.count(1)
        self._parked: dict[int, None] = {}  # serials; an item is added or removed in one step
        self._by_topic: dict[str, dict[int, None]] = accumulator.held_topics  # serials
        self._new: deque[tuple[str, int | None, ParkedRecord]] = deque()
        self._lines: dict[tuple[str, int | None], _Line] = {}  # the sender's
        self._held_bytes = 0
        self._flushes: deque[Callable[[], None]] = deque()
        self._has_ended = False
        self._end_error: Exception = KafkaError("the sender thread has ended")

    def __len__(self) -> int:
        """How many records are parked."""
        return len(self._parked)

    def must_wait(self, topic: str) -> bool:
        """Whether a record has to be parked: its topic is not known, or others of it still wait here."""
        return topic not in self._accumulator.topics or self.holds(topic)

    def holds(self, topic: str) -> bool:
        """Whether records of the topic wait here."""
        return bool(self._by_topic.get(topic))

    def add(
        self,
        topic: str,
        partition: int | None,
        size: int,
        send: Callable[[], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        """Park a record. Any thread; never waits.

        Args:
            topic: Its topic.
            partition: Must be there before it is sent; None: any.
            size, send, fail: See ParkedRecord.

        Raises:
            BufferFullError: What is parked holds as much as buffer_memory; nothing was parked.
        """
        if self._held_bytes + size > self._accumulator.pool.capacity:
            raise BufferFullError(
                f"no memory for a record of topic {topic!r}: records that wait for their topic's metadata hold "
                f"{self._held_bytes} bytes, and may hold no more than buffer_memory={self._accumulator.pool.capacity}",
                topic=topic,
            )
        serial = next(self._serials)
        record = ParkedRecord(size, send, fail, self._clock.now_ms() + self._max_block_ms, serial)
        self._parked[serial] = None
        self._accumulator.hold(topic)[serial] = None
        self._held_bytes += size
        self._new.append((topic, partition, record))
        self._wakeup()
        if self._has_ended:
            self._end_new()

    def settled(self, timeout_s: float | None, make_waiter: MakeWaiter, topic: str | None = None) -> Steps[bool]:
        """Steps of waiting until what is parked now has been appended or has failed; False after the timeout.

        Args:
            topic: Wait for records of this topic alone; None: for all.
        """
        parked = self._parked if topic is None else self._by_topic.get(topic, {})
        mark = next(self._serials)
        end_ms = None if timeout_s is None else self._clock.now_ms() + int(timeout_s * 1000)
        waiter = make_waiter()
        wake = waiter.wake
        self._flushes.append(wake)
        try:
            self._wakeup()
            while any(serial < mark for serial in list(parked)):
                left_s = WAIT_S if end_ms is None else (end_ms - self._clock.now_ms()) / 1000
                if left_s <= 0:
                    return False
                yield waiter, min(left_s, WAIT_S)
        finally:
            self._flushes.remove(wake)
        return True

    # -- the sender's side ---------------------------------------------------------------------------------------------

    def run(self, now_ms: int) -> int:
        """Append what can be appended, fail what has waited too long; return when to look again, in ms from now."""
        while self._new:
            topic, partition, record = self._new.popleft()
            self._line(topic, partition).records.append(record)
        return min([self._advance(key, now_ms) for key in list(self._lines)], default=LONGEST_WAIT_MS)

    def fail_all(self, error: Exception) -> int:
        """Fail everything that is parked; return how many records that were."""
        self.run(self._clock.now_ms())
        count = 0
        for key in list(self._lines):
            count += self._fail(key, self._lines[key], error)
        return count

    def end(self, error: Exception) -> None:
        """Fail everything, also what comes later: nothing runs any more."""
        self._has_ended = True
        self._end_error = error
        self.fail_all(error)

    def _end_new(self) -> None:
        while self._new:
            topic, _, record = self._new.popleft()
            self._let_go(topic, record)
            _tell(record, copy_to_raise(self._end_error))

    def _line(self, topic: str, partition: int | None) -> _Line:
        line = self._lines.get((topic, partition))
        if line is None:
            entry = self._watch.enter(topic, partition, lambda: self._on_news((topic, partition)))
            line = self._lines[topic, partition] = _Line(entry)
        return line

    def _on_news(self, key: tuple[str, int | None]) -> None:
        """Append at once when the metadata is there, before any later record of a callback."""
        if key in self._lines:
            self._advance(key, self._clock.now_ms())

    def _advance(self, key: tuple[str, int | None], now_ms: int) -> int:
        line = self._lines[key]
        deadline_ms = line.records[0].deadline_ms if line.records else now_ms + LONGEST_WAIT_MS
        try:
            is_known = self._watch.look(line.entry, deadline_ms, _is_usable) is not None
        except MetadataTimeoutError as error:
            self._fail(key, line, error, until_ms=now_ms)
            return 0
        except Exception as error:
            self._fail(key, line, error)
            return LONGEST_WAIT_MS
        if not is_known:
            return max(min(int(self._watch.patience_s(line.entry, deadline_ms) * 1000), LONGEST_WAIT_MS), 1)
        while line.records:
            record = line.records[0]
            failure: Exception | None = None
            try:
                if not record.send():
                    failure = BufferFullError(
                        f"no memory for a record of topic {key[0]!r} within max_block_ms={self._max_block_ms}"
                    )
            except Exception as error:
                failure = error
            is_full = isinstance(failure, BufferFullError) and not isinstance(failure, NodeBufferFullError)
            if is_full and record.deadline_ms > now_ms:
                return LOOK_MS
            line.records.popleft()
            self._let_go(key[0], record)
            if failure is not None:
                _tell(record, failure)
        self._leave(key, line)
        return LONGEST_WAIT_MS

    def _fail(self, key: tuple[str, int | None], line: _Line, error: Exception, *, until_ms: int | None = None) -> int:
        """Fail the records of a line, or those whose deadline is no later than `until_ms`; return how many."""
        count = 0
        while line.records and (until_ms is None or line.records[0].deadline_ms <= until_ms):
            record = line.records.popleft()
            self._let_go(key[0], record)
            count += 1
            _tell(record, copy_to_raise(error))
        if not line.records:
            self._leave(key, line)
        return count

    def _leave(self, key: tuple[str, int | None], line: _Line) -> None:
        self._watch.leave(line.entry)
        self._lines.pop(key, None)

    def _let_go(self, topic: str, record: ParkedRecord) -> None:
        self._by_topic[topic].pop(record.serial, None)
        self._parked.pop(record.serial, None)
        self._held_bytes = self._held_bytes - record.size if self._parked else 0
        for wake in list(self._flushes):
            wake()


def _tell(record: ParkedRecord, error: Exception) -> None:
    try:
        record.fail(error)
    except Exception:
        logger.exception("the failure of a record could not be reported")


def _is_usable() -> None:
    """Check nothing: what is parked is delivered by close(), too."""
