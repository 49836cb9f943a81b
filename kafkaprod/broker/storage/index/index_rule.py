"""When a batch gets index entries: one rule for the append path and for rebuilding.

A batch is indexed when more than `index.interval.bytes` lie between the batch indexed last (itself included) and it;
the first batch of a segment never is. Source: Kafka storage, LogSegment.append and recover.
"""

from __future__ import annotations

from kafkaprod.broker.storage.index.time_index import TimestampOffset
from kafkaprod.storage.batch_header import NO_TIMESTAMP, BatchHeader


class IndexRule:
    """Running state of one segment.

    Attributes:
        largest: The largest max timestamp so far and the last offset of the earliest batch that holds it.
        first_timestamp: The max timestamp of the segment's first batch, ms; -1 if it has none. Decides rolling by time.
    """

    __slots__ = ("_bytes_since_entry", "_interval_bytes", "first_timestamp", "is_empty", "largest")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        self.is_empty = True
        self.first_timestamp = NO_TIMESTAMP
        self.largest = TimestampOffset(NO_TIMESTAMP, base_offset)

    def add(self, header: BatchHeader) -> bool:
        """Take the next batch into account; return whether it gets an offset entry and, maybe, a time entry."""
        if self.is_empty:
            self.is_empty = False
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(header.max_timestamp, header.last_offset)
        is_due = self._bytes_since_entry > self._interval_bytes
        if is_due:
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes
        return is_due

    def resume(self, first_timestamp: int, largest: TimestampOffset) -> None:
        """Continue at a batch that is in the index: the next `add` is that batch, and it is due again."""
        self.is_empty = False
        self.first_timestamp = first_timestamp
        self.largest = largest
        self._bytes_since_entry = self._interval_bytes + 1
