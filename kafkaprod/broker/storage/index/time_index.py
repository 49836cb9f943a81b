"""Timestamp -> offset of one segment, sparse.

    entry, 12 bytes:  int64 largest timestamp so far (ms) | int32 last offset of the batch that holds it, relative
Timestamps strictly increase, offsets do not decrease. An entry (t, o) means: no batch before o has a timestamp above t.
Source: Kafka storage, TimeIndex. Not thread-safe: the partition's lock guards it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkaprod.broker.storage.index.index_file import IndexFile
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.storage.batch_header import NO_TIMESTAMP
from kafkaprod.storage.disk import Disk, LogFile

ENTRY = struct.Struct(">qi")
ENTRY_BYTES = ENTRY.size


class TimestampOffset(NamedTuple):
    """A timestamp in ms and the last offset of the batch that holds it."""

    timestamp: int
    offset: int


class TimeIndex:
    """The .timeindex file of the segment that starts at `base_offset`."""

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, open_files: LruCache[LogFile]) -> None:
        self.base_offset = base_offset
        self.file = IndexFile(disk, path, ENTRY_BYTES, max_bytes, open_files)

    @property
    def is_full(self) -> bool:
        """No further entry fits but the last one, which is kept for the entry added when the segment closes."""
        return self.file.count >= self.file.max_entries - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry, or (-1, base offset) in an empty index."""
        return self.entry(self.file.count - 1) if self.file.count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def entry(self, index: int) -> TimestampOffset:
        """The entry number `index`, from 0."""
        timestamp, relative = ENTRY.unpack_from(self.file.entries(), index * ENTRY_BYTES)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is above the last one's."""
        if timestamp > self.last.timestamp and self.file.count < self.file.max_entries:
            self.file.append(ENTRY.pack(timestamp, offset - self.base_offset))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The entry with the largest timestamp not above `timestamp`, or (-1, base offset)."""
        entries, low, high = self.file.entries(), 0, self.file.count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(entries, middle * ENTRY_BYTES)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        count = self.file.count
        while count and self.entry(count - 1).offset >= offset:
            count -= 1
        self.file.truncate(count)
