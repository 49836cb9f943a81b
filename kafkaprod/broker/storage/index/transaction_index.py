"""The aborted transactions of one segment, by the offset of their ABORT markers.

    entry, 34 bytes: int16 version 0 | int64 producerId | int64 firstOffset | int64 lastOffset | int64 lastStableOffset
The file exists only if the segment holds an ABORT marker that ended a transaction with data.
Source: Kafka storage, TransactionIndex; AbortedTxn.json. Not thread-safe: the partition's lock guards it.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from kafkaprod.storage.disk import Disk, read_file, write_at

ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first record, its marker, and the last stable offset once it had ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The .txnindex file of a segment; its few entries are kept in memory."""

    def __init__(self, disk: Disk, path: str, entries: list[AbortedTransaction] | None = None) -> None:
        self.path = path
        self.entries = entries or []
        self._disk = disk

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry; the file is created by the first.

        Raises:
            OSError: The write failed; the entry is in memory only.
        """
        self.entries.append(aborted)
        file = self._disk.create(self.path)
        write_at(self._disk, file, encode_entries([aborted]), (len(self.entries) - 1) * ENTRY_BYTES)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) == len(self.entries):
            return
        self.entries = kept
        if not kept:
            self._disk.unlink(self.path)
            return
        self._disk.truncate(self._disk.create(self.path), len(kept) * ENTRY_BYTES)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions in [fetch_offset, upper_bound), and whether later segments cannot add any."""
        found = []
        for entry in self.entries:
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def content(self) -> bytes:
        """The bytes of the file."""
        return encode_entries(self.entries)


def encode_entries(entries: list[AbortedTransaction]) -> bytes:
    """The bytes of a .txnindex file."""
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)


def read_entries(path: str) -> list[AbortedTransaction]:
    """Read a .txnindex file, unchecked; one that is missing or of an impossible size has no entries."""
    if not os.path.lexists(path):
        return []
    content = read_file(path)
    if len(content) % ENTRY_BYTES:
        return []
    return [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(content)]
