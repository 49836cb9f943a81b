"""A file of fixed-size entries, sorted by the caller: what offset index and time index have in common.

While active the file is preallocated (sparse) to its largest size; trimmed to its entries when closed. Entries are
written by `pwrite` and read through a map of the file: a full disk is then an error of the write, never a SIGBUS.
Indexes are derived from the log: never synced. Not thread-safe: the partition's lock guards it.
Source: Kafka storage, AbstractIndex.
"""

from __future__ import annotations

import mmap
import os

from kafkaprod.broker.storage.disk import Disk, LogFile, open_for_read, write_at


class IndexFile:
    """Entries of `entry_bytes` bytes each in the file `path`.

    Attributes:
        count: Entries written.
        max_entries: Entries the preallocated file can hold.
    """

    def __init__(self, disk: Disk, path: str, entry_bytes: int, max_bytes: int) -> None:
        self.path = path
        self.entry_bytes = entry_bytes
        self.max_entries = max_bytes // entry_bytes
        self.count = os.path.getsize(path) // entry_bytes if os.path.exists(path) else 0
        self._disk = disk
        self._file: LogFile | None = None  # open while active
        self._map: mmap.mmap | bytes | None = None

    def preload(self, content: bytes) -> None:
        """Use these entries instead of the file's; for an inactive index."""
        self.count = len(content) // self.entry_bytes
        self._map = content

    def activate(self) -> None:
        """Create or reopen for appends; the count so far is kept."""
        self._file = self._disk.create(self.path)
        self._disk.truncate(self._file, self.max_entries * self.entry_bytes)
        self._map = None

    def entries(self) -> mmap.mmap | bytes:
        """The bytes of the entries; what lies after the first `count` entries is not defined."""
        if self._map is None:
            self._map = map_file(self._file or open_for_read(self.path)) if self.count else b""
        return self._map

    def append(self, entry: bytes) -> None:
        """Add an entry.

        Raises:
            OSError: the write failed; the count is unchanged.
        """
        assert self._file is not None, f"append to closed index {self.path}"
        write_at(self._disk, self._file, entry, self.count * self.entry_bytes)
        if not self.count:
            self._map = None  # an empty index was mapped as b""
        self.count += 1

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        self.count = min(self.count, count)

    def close(self) -> None:
        """Trim the file to its entries; reads go on, appends do not. May be repeated."""
        if self._file is None:
            return
        self._map = None
        self._disk.truncate(self._file, self.count * self.entry_bytes)
        self._file = None

    def content(self) -> bytes:
        """A copy of the entries."""
        return bytes(self.entries()[: self.count * self.entry_bytes])


def map_file(file: LogFile) -> mmap.mmap | bytes:
    """Map a file for reading; an empty one is b"". The map outlives the file object and unmaps itself."""
    if os.fstat(file.fd).st_size == 0:
        return b""
    return mmap.mmap(file.fd, 0, access=mmap.ACCESS_READ)
