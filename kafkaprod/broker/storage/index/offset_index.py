"""Offset -> file position of one segment, sparse.

    entry, 8 bytes:  int32 offset of the batch's last record, relative to the segment | int32 position of its start
Offsets strictly increase. Source: Kafka storage, OffsetIndex. Not thread-safe: the partition's lock guards it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkaprod.broker.storage.index.index_file import IndexFile
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.storage.disk import Disk, LogFile

ENTRY = struct.Struct(">ii")
ENTRY_BYTES = ENTRY.size


class OffsetPosition(NamedTuple):
    """A batch: the offset of its last record and the position of its first byte in the .log file."""

    offset: int
    position: int


class OffsetIndex:
    """The .index file of the segment that starts at `base_offset`."""

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int, open_files: LruCache[LogFile]) -> None:
        self.base_offset = base_offset
        self.file = IndexFile(disk, path, ENTRY_BYTES, max_bytes, open_files)

    @property
    def is_full(self) -> bool:
        """No further entry fits."""
        return self.file.count >= self.file.max_entries

    @property
    def last(self) -> OffsetPosition:
        """The last entry, or the segment's start in an empty index."""
        return self.entry(self.file.count - 1) if self.file.count else OffsetPosition(self.base_offset, 0)

    def entry(self, index: int) -> OffsetPosition:
        """The entry number `index`, from 0."""
        relative, position = ENTRY.unpack_from(self.file.entries(), index * ENTRY_BYTES)
        return OffsetPosition(self.base_offset + relative, position)

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends with `offset` and starts at `position`; an offset not above the last is an error."""
        if self.file.count and offset <= self.last.offset:
            raise ValueError(f"offset {offset} is not above the last entry {self.last.offset} of {self.file.path}")
        self.file.append(ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset not above `offset`, or (base offset, 0)."""
        found = self._count_up_to(offset)
        return self.entry(found - 1) if found else OffsetPosition(self.base_offset, 0)

    def first_at_or_after_position(self, position: int) -> OffsetPosition | None:
        """The first entry whose batch starts at or after `position`, or None."""
        entries, low, high = self.file.entries(), 0, self.file.count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(entries, middle * ENTRY_BYTES)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low) if low < self.file.count else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.file.truncate(self._count_up_to(offset - 1))

    def _count_up_to(self, offset: int) -> int:
        relative = offset - self.base_offset
        entries, low, high = self.file.entries(), 0, self.file.count
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(entries, middle * ENTRY_BYTES)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return low
