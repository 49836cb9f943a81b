"""The segments of one slot: appending, syncing, rolling, freeing, within a limit of bytes.

An entry counts from the moment that its write has returned; a write that fails is cut off again, and the journal takes
more when there is room. A sync that fails is never repeated: the journal takes nothing more, and the next process reads
what is there. No thread may use a journal while another does.
"""

from __future__ import annotations

import errno
import os
import secrets
from typing import Final

from kafkaprod.errors import ConfigError
from kafkaprod.spool.entries import (
    Control,
    Incarnation,
    SpooledPartition,
    grant_entry,
    incarnation_entry,
    progress_entry,
    sent_batch,
    snapshot_entry,
    store_batch,
    store_control,
    topic_entry,
)
from kafkaprod.spool.recovery import Recovered, StoredBatch, recover, segment_name, segment_offset
from kafkaprod.storage.batch_header import parse_header
from kafkaprod.storage.directory_lock import lock_directory
from kafkaprod.storage.disk import Disk, LogFile, check_owner, list_files, open_for_read, write_at
from kafkaprod.storage.segment_bytes import FileBytes
from kafkaprod.structs import INT32_MAX

CONTROL_RESERVE_BYTES: Final = 65_536  # progress can be recorded, and segments freed, when batches find no room
DAMAGED_SUFFIX: Final = ".damaged"


class Journal:
    """The journal of one slot.

    Args:
        directory: The slot; it exists.
        max_bytes: The most bytes of all segments together.
        segment_bytes: From this size on the next entry begins a new segment.
        disk: Makes the calls.

    Attributes:
        recovered: What was in the directory.

    Raises:
        ConfigError: Another producer has the slot, others may write to it, or a newer release has written it.
        OSError: The disk refused.
    """

    def __init__(self, directory: str, max_bytes: int, segment_bytes: int, disk: Disk) -> None:
        check_owner(directory)
        lock = lock_directory(disk, directory)
        if lock is None:
            raise ConfigError(f"spool {directory} is in use by another producer")
        self._lock = lock
        self._directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._disk = disk
        named = {segment_offset(name): size for name, size in list_files(directory).items()}
        sizes = {offset: size for offset, size in named.items() if offset is not None}
        self.recovered = recover({offset: FileBytes(self._open(offset)) for offset in sizes})
        self._state = self.recovered.state
        self._mark = secrets.randbelow(INT32_MAX) if self._state.mark is None else self._state.mark
        self._next_offset = self.recovered.next_offset
        self._last_ranks: dict[int, dict[int, int]] = {offset: {} for offset in sizes}  # of each segment's partitions
        self._sizes = sizes
        self._failure: OSError | None = None
        for batch in self.recovered.unresolved:
            self._last_ranks[batch.segment][batch.reference] = batch.last_rank
        self._repair(self.recovered)
        self._begin_segment()

    @property
    def size_bytes(self) -> int:
        """How many bytes all segments have."""
        return sum(self._sizes.values())

    def reference(self, topic: str, topic_id: bytes, partition: int) -> int:
        """Return the reference of a partition, and enter one that is not in the table.

        Raises:
            OSError: The disk refused, or the journal has failed.
        """
        known = self._state.find(topic, topic_id, partition)
        if known is not None:
            return known
        reference = max(max(self._state.table, default=-1) + 1, self.recovered.next_reference)
        self._append_control(topic_entry(reference, SpooledPartition(topic, topic_id, partition)))
        return reference

    def append(self, reference: int, batch: bytes, *, is_held: bool) -> int:
        """Write a sealed batch; return the rank of its first record. The batch may not be sent before.

        Raises:
            IllegalStateError: It may not be sent as it stands: it must be held.
            OSError: ENOSPC, the disk or the limit is reached; another one, the journal has failed. Nothing was stored.
        """
        item = self._state.table[reference]
        if not is_held:
            self._state.check_grant(reference, item.next_rank)
        if self.size_bytes + len(batch) + CONTROL_RESERVE_BYTES > self._max_bytes:
            raise OSError(
                errno.ENOSPC,
                f"the spool has {self.size_bytes} of at most {self._max_bytes} bytes, {CONTROL_RESERVE_BYTES} of them "
                f"for its own entries: a batch of {len(batch)} bytes has no room",
                self._directory,
            )
        self._maybe_roll()
        rank = item.next_rank
        stored = store_batch(batch, self._next_offset, self._mark, reference, rank, is_held=is_held)
        self._write(stored)
        header = parse_header(stored)
        self._state.add_batch(header, rank)
        self._next_offset = header.last_offset + 1
        self._last_ranks[self._segment][reference] = item.next_rank - 1
        return rank

    def begin_incarnation(self, reference: int, producer_id: int, producer_epoch: int) -> None:
        """Give a partition's next batches a producer id and an epoch; it is on the disk when this returns.

        Raises:
            IllegalStateError: Batches of the incarnation before are not resolved.
            OSError: The disk refused, or the journal has failed.
        """
        self._state.check_new_incarnation(reference)
        first_rank = self._state.table[reference].resolved_rank
        self._append_control(incarnation_entry(reference, Incarnation(producer_id, producer_epoch, first_rank)))
        self.sync()

    def grant(self, cuts: list[tuple[int, int, int]]) -> None:
        """Let held batches be sent: (reference, first rank, last rank) of each; it is on the disk when this returns.

        Raises:
            IllegalStateError: One of them may not be sent now.
            OSError: The disk refused, or the journal has failed.
        """
        for reference, first, _ in cuts:
            self._state.check_grant(reference, first)
        self._append_control(grant_entry(cuts))
        self.sync()

    def resolve(self, resolved: dict[int, tuple[int, int]]) -> None:
        """Note how far partitions are resolved, reference -> (rank, last offset), and remove segments that are.

        Raises:
            IllegalStateError: A partition does not have so many records, or was resolved further.
            OSError: The disk refused, or the journal has failed.
        """
        self._state.check_resolved(resolved)
        self._append_control(progress_entry(resolved))
        self._free()

    def sync(self) -> None:
        """Return when all entries are on the disk.

        Raises:
            OSError: They may not be; the journal has failed.
        """
        self._check()
        try:
            self._disk.fdatasync(self._file)
        except OSError as error:
            self._failure = error
            raise

    def read(self, batch: StoredBatch) -> bytearray:
        """Return a batch as it is sent under the partition's incarnation.

        Raises:
            OSError: The disk refused.
        """
        data = FileBytes(self._open(batch.segment)).at(batch.position, batch.size_bytes)[: batch.size_bytes]
        return sent_batch(bytes(data), batch.rank, self._state.table[batch.reference].incarnation)

    def close(self) -> None:
        """Give the slot to others. Nothing is written: a closed journal and one of a killed process are the same."""
        self._failure = OSError(errno.EBADF, "the journal is closed", self._directory)
        os.close(self._lock.fd)
        self._lock.fd = -1

    def _open(self, offset: int) -> LogFile:
        return open_for_read(self._path(offset))

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, segment_name(offset))

    def _check(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"the journal has failed before: {self._failure}", self._directory)

    def _repair(self, recovered: Recovered) -> None:
        """Cut the torn tails, and put aside a segment that has no entry at all."""
        for offset, size in recovered.valid_bytes.items():
            if size and (offset in recovered.damaged or self._sizes[offset] == size):
                continue
            if offset in recovered.damaged:
                self._disk.rename(self._path(offset), self._path(offset) + DAMAGED_SUFFIX)
                del self._sizes[offset], self._last_ranks[offset]
            elif size:
                self._disk.truncate(self._disk.create(self._path(offset)), size)
                self._sizes[offset] = size
            else:
                self._disk.unlink(self._path(offset))
                del self._sizes[offset], self._last_ranks[offset]

    def _begin_segment(self) -> None:
        """Begin a segment with all that is known: it is on the disk, with its name, before anything follows."""
        offset = self._next_offset
        snapshot = store_control(snapshot_entry(self._mark, self._state.table), offset, self._mark, 0)
        file = self._disk.create(self._path(offset))
        try:
            self._disk.truncate(file, 0)
            write_at(self._disk, file, snapshot, 0)
            self._disk.fdatasync(file)
            self._disk.sync_dir(self._directory)
        except OSError:
            self._disk.unlink(self._path(offset))
            raise
        self._file, self._segment, self._next_offset = file, offset, offset + 1
        self._sizes[offset], self._last_ranks[offset] = len(snapshot), {}

    def _maybe_roll(self) -> None:
        if self._sizes[self._segment] >= self._segment_bytes:
            self.sync()
            self._begin_segment()

    def _append_control(self, control: Control) -> None:
        self._check()
        self._maybe_roll()
        self._write(store_control(control, self._next_offset, self._mark, 0))
        self._state.apply(control)
        self._next_offset += 1

    def _write(self, entry: bytearray) -> None:
        """Append an entry to the segment; a write that fails leaves nothing of it."""
        self._check()
        size = self._sizes[self._segment]
        try:
            write_at(self._disk, self._file, entry, size)
        except OSError:
            try:
                self._disk.truncate(self._file, size)
            except OSError as error:
                self._failure = error
            raise
        self._sizes[self._segment] = size + len(entry)

    def _free(self) -> None:
        """Remove the segments whose records are all resolved, when the disk has the entry that says so."""
        table = self._state.table
        free = [
            offset
            for offset, ranks in self._last_ranks.items()
            if offset != self._segment and all(table[key].resolved_rank > rank for key, rank in ranks.items())
        ]
        if not free:
            return
        self.sync()
        for offset in free:
            if offset in self.recovered.damaged:
                self._disk.rename(self._path(offset), self._path(offset) + DAMAGED_SUFFIX)
            else:
                self._disk.unlink(self._path(offset))
            del self._sizes[offset], self._last_ranks[offset]
