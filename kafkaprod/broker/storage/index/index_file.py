"""A file of fixed-size entries, sorted by the caller: what offset index and time index have in common.

While active the file is preallocated (sparse) to its largest size; trimmed to its entries when closed. The entries are
copied into memory when the index is opened, and appended there and to the file: nothing is mapped, because a file that
is cut by another program, or on a failing disk, would then end the process with SIGBUS. Indexes are derived from the
log: never synced. An active file is open only while it is written to: a broker of 10,000 partitions would otherwise
have 20,000 open files for them. Not thread-safe: the partition's lock guards it. Source: Kafka storage, AbstractIndex.
"""

from __future__ import annotations

from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.storage.disk import Disk, LogFile, read_file, write_at


class IndexFile:
    """Entries of `entry_bytes` bytes each in the file `path`.

    Attributes:
        max_entries: Entries the preallocated file can hold.
        count: Entries written.
    """

    def __init__(self, disk: Disk, path: str, entry_bytes: int, max_bytes: int, open_files: LruCache[LogFile]) -> None:
        self.path = path
        self.entry_bytes = entry_bytes
        self.max_entries = max_bytes // entry_bytes
        self._disk = disk
        self._open_files = open_files
        self._is_active = False
        try:
            self._entries = bytearray(read_file(path))
        except FileNotFoundError:
            self._entries = bytearray()
        self.count = len(self._entries) // entry_bytes
        del self._entries[self.count * entry_bytes :]

    def preload(self, content: bytes) -> None:
        """Use these entries instead of the file's; for an inactive index."""
        self._entries = bytearray(content)
        self.count = len(content) // self.entry_bytes

    def activate(self) -> None:
        """Create or reopen for appends; the entries so far are kept."""
        self._disk.truncate(self._disk.create(self.path), self.max_entries * self.entry_bytes)
        self._is_active = True

    def entries(self) -> bytearray:
        """The bytes of the entries; do not change them, nor keep a view of them."""
        return self._entries

    def append(self, entry: bytes) -> None:
        """Add an entry.

        Raises:
            OSError: The write failed; the entries are unchanged.
        """
        assert self._is_active, f"append to closed index {self.path}"
        write_at(self._disk, self._file(), entry, len(self._entries))
        self._entries += entry
        self.count = len(self._entries) // self.entry_bytes

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self._entries[count * self.entry_bytes :]
        self.count = len(self._entries) // self.entry_bytes

    def close(self) -> None:
        """Trim the file to its entries; reads still work, appends do not. May be repeated."""
        if not self._is_active:
            return
        self._disk.truncate(self._file(), len(self._entries))
        self.forget_file()

    def forget_file(self) -> None:
        """Take no appends any more, and drop the open file: it may be deleted or renamed."""
        self._is_active = False
        self._open_files.forget(self.path)

    def content(self) -> bytes:
        """A copy of the entries."""
        return bytes(self._entries)

    def _file(self) -> LogFile:
        return self._open_files.get(self.path, lambda: self._disk.create(self.path))
