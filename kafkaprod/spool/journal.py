"""The segments of one slot: appending, syncing, rolling, freeing, within a limit of bytes.

An entry counts from the moment that its write has returned; a write that fails is cut off again, and the journal takes
more when there is room. A sync that fails is never repeated: the journal takes nothing more, and the next process reads
what is there. One thread uses a journal; another may sync the file that `unsynced` has returned.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from kafkaprod.clock import monotonic_ns
from kafkaprod.errors import ConfigError
from kafkaprod.spool.entries import (
    RANK_MASK,
    Control,
    Incarnation,
    JournalPlace,
    SpooledPartition,
    cluster_entry,
    incarnation_entry,
    progress_entry,
    snapshot_entry,
    store_control,
    topic_entry,
)
from kafkaprod.spool.recovery import recover, segment_name, segment_offset
from kafkaprod.spool.reserve import CONTROL_RESERVE_BYTES, Reserve
from kafkaprod.spool.state import JournalState
from kafkaprod.storage.batch_checks import valid_batch_at
from kafkaprod.storage.batch_header import BatchHeader, assign_offset
from kafkaprod.storage.directory_lock import lock_directory
from kafkaprod.storage.disk import Disk, LogFile, check_owner, list_files, open_for_read, write_at
from kafkaprod.storage.segment_bytes import WINDOW_BYTES, FileBytes
from kafkaprod.structs import INT32_MAX, BytesLike

HOP_BYTES: Final = 4096  # read at a time where only headers are looked at
DAMAGED_SUFFIX: Final = ".damaged"
NO_PLACE: Final = JournalPlace()


class SlotInUseError(ConfigError):
    """Another producer has the slot."""


class Unsynced(NamedTuple):
    """Bytes of a journal that may not be on the disk: the file to sync, its segment, and how many bytes it has."""

    file: LogFile
    segment: int
    size_bytes: int


class MovedEntries(NamedTuple):
    """Where entries are now: those of a segment from a position on are in another, `distance` bytes further."""

    old_segment: int
    from_position: int
    segment: int
    distance: int


class Journal:
    """The journal of one slot.

    Args:
        directory: The slot; it exists.
        max_bytes: The most bytes of all segments together.
        segment_bytes: From this size on the next entry begins a new segment.
        disk: Makes the calls.
        place: Where this process is.

    Attributes:
        directory: The slot.
        recovered: What was in the directory.
        was_moved: Whether there was something, and the place where it was written is another or is not known.
        sync_count, sync_ns: How often entries were forced to the disk, and how long that took together.

    Raises:
        SlotInUseError: Another producer has the slot.
        ConfigError: Others may write to it, or a newer release has written it.
        OSError: The disk refused.
    """

    def __init__(
        self, directory: str, max_bytes: int, segment_bytes: int, disk: Disk, place: JournalPlace = NO_PLACE
    ) -> None:
        check_owner(directory)
        lock = lock_directory(disk, directory)
        if lock is None:
            raise SlotInUseError(f"spool {directory} is in use by another producer")
        self._lock = lock
        self.directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._disk = disk
        try:
            self._begin(place)
        except BaseException:
            os.close(lock.fd)
            lock.fd = -1
            raise

    def _begin(self, place: JournalPlace) -> None:
        named = {segment_offset(name): size for name, size in list_files(self.directory).items()}
        sizes = {offset: size for offset, size in named.items() if offset is not None}
        newest = max(sizes, default=0)
        images = {
            offset: FileBytes(self._open(offset), WINDOW_BYTES if offset == newest else HOP_BYTES) for offset in sizes
        }
        self.recovered = recover(images, by_headers=True)
        self._state = self.recovered.state
        slot = self._state.slot
        self.was_moved = slot.mark is not None and (slot.place != place or place == NO_PLACE)
        self.mark = secrets.randbelow(INT32_MAX) if slot.mark is None else slot.mark
        self._state.slot = slot._replace(mark=self.mark, place=place)
        self.next_offset = self.recovered.next_offset
        self._last_ranks: dict[int, dict[int, int]] = {offset: {} for offset in sizes}  # of each segment's partitions
        self._sizes = sizes
        self._failure: OSError | None = None
        self._is_synced = True
        self._synced = 0, 0
        self.sync_count = 0
        self.sync_ns = 0
        self._read_files: dict[int, LogFile] = {}
        self._references = {(item.topic, item.partition): key for key, item in self._state.table.items()}
        for batch in self.recovered.unresolved:
            self._last_ranks[batch.segment][batch.reference] = batch.last_rank
        self._repair()
        self._begin_next_segment()
        self._reserve = Reserve(self.directory, self._disk)

    @property
    def state(self) -> JournalState:
        """What all entries say."""
        return self._state

    @property
    def size_bytes(self) -> int:
        """How many bytes all segments have."""
        return sum(self._sizes.values())

    @property
    def room_bytes(self) -> int:
        """How many bytes of batches there is room for."""
        return max(self._max_bytes - CONTROL_RESERVE_BYTES - self.size_bytes, 0)

    @property
    def synced(self) -> tuple[int, int]:
        """A segment, and how many bytes of it are on the disk for sure; all before it are."""
        return self._synced

    @property
    def failure(self) -> OSError | None:
        """Why the journal takes nothing any more; None: it does."""
        return self._failure

    def enter(self, topic: str, topic_id: bytes, partition: int, partition_count: int) -> int:
        """Enter a partition in the table, or what has changed of its topic; return its reference.

        Raises:
            OSError: The disk refused, or the journal has failed.
        """
        reference = self._references.get((topic, partition))
        if reference is None:
            reference = max(max(self._state.table, default=-1) + 1, self.recovered.next_reference)
        else:
            known = self._state.table[reference]
            if (known.topic_id, known.partition_count) == (topic_id, partition_count):
                return reference
        item = SpooledPartition(topic, topic_id, partition, partition_count)
        self._append_control(topic_entry(reference, item))
        self._references[topic, partition] = reference
        return reference

    def append(
        self, entries: BytesLike, next_offset: int, ends: Iterable[tuple[int, int]], *, syncs: bool = False
    ) -> tuple[int, int]:
        """Write entries of batches; return the segment and the position of the first. None may be sent before.

        Args:
            entries: As many as there are offsets from `self.next_offset` to `next_offset`.
            ends: (reference, the rank behind its last record) of each partition.
            syncs: Whether they are on the disk when this returns.

        Raises:
            OSError: ENOSPC, the disk or the limit is reached; another one, the journal has failed. Nothing was stored.
        """
        size = len(entries)
        if size > self.room_bytes:
            raise OSError(
                errno.ENOSPC,
                f"the spool has {self.size_bytes} of at most {self._max_bytes} bytes, {CONTROL_RESERVE_BYTES} of them "
                f"for its own entries: {size} bytes of batches have no room",
                self.directory,
            )
        position = self._sizes[self._segment]
        self._write(entries)
        if syncs:
            try:
                self.sync()
            except OSError:
                self._sizes[self._segment] = position  # they are not stored, and begin_again() leaves them out
                raise
        self.next_offset = next_offset
        last_ranks = self._last_ranks[self._segment]
        for reference, next_rank in ends:
            self._state.table[reference].next_rank = next_rank
            last_ranks[reference] = next_rank - 1
        return self._segment, position

    def roll(self) -> None:
        """Begin a new segment if this one is full: what is collected next has the offset for it.

        Raises:
            OSError: The disk refused, or the journal has failed.
        """
        if self._sizes[self._segment] >= self._segment_bytes:
            self.sync()
            self._begin_next_segment()
            self.free()

    def begin_incarnations(self, incarnations: Iterable[tuple[int, Incarnation]]) -> None:
        """Give partitions' next batches a producer id and an epoch; it is on the disk when this returns.

        Raises:
            IllegalStateError: Batches of the incarnation before are not resolved.
            OSError: The disk refused, or the journal has failed.
        """
        for reference, incarnation in incarnations:
            self._state.check_incarnation(reference, incarnation.first_rank)
            self._append_control(incarnation_entry(reference, incarnation))
        self.sync()

    def note_cluster(self, cluster_id: str) -> None:
        """Note which cluster gives the producer ids.

        Raises:
            OSError: The disk refused, or the journal has failed.
        """
        self._append_control(cluster_entry(cluster_id))

    def resolve(self, resolved: dict[int, tuple[int, int]], wall_ms: int) -> None:
        """Note how far partitions are resolved, reference -> (rank, last offset), by answers that came at `wall_ms`.

        Raises:
            IllegalStateError: A partition does not have so many records, or was resolved further.
            OSError: The disk refused, or the journal has failed.
        """
        self._state.check_resolved(resolved)
        self._state.contact_ms = wall_ms
        self._append_control(progress_entry(resolved))

    def sync(self) -> None:
        """Return when all entries are on the disk.

        Raises:
            OSError: They may not be; the journal has failed.
        """
        self._check()
        started_ns = monotonic_ns()
        try:
            self._disk.fdatasync(self._file)
        except OSError as error:
            self._failure = error
            raise
        self._is_synced = True
        self.note_synced(Unsynced(self._file, self._segment, self._sizes[self._segment]), started_ns)

    def unsynced(self) -> Unsynced | None:
        """Return what to sync if something was written since the last sync, or the last call; else None."""
        if self._is_synced:
            return None
        self._is_synced = True
        return Unsynced(self._file, self._segment, self._sizes[self._segment])

    def note_synced(self, what: Unsynced, started_ns: int) -> None:
        """Note that what `unsynced` returned is on the disk, by a call that began then. From any thread."""
        self.sync_count += 1
        self.sync_ns += monotonic_ns() - started_ns
        self._synced = max(self._synced, (what.segment, what.size_bytes))  # one that is too low does no harm

    def fail(self, what: Unsynced, error: OSError) -> None:
        """Take nothing more until begin_again(): a sync of what `unsynced` returned has failed."""
        if what.segment == self._segment:
            self._failure = error

    def begin_again(self) -> MovedEntries:
        """Continue in a new segment after a failure: what may not be on the disk is written there again, and synced.

        A sync that failed is not repeated: the system may have dropped what it could not write, and report success the
        next time. What it still has in memory is checked.

        Raises:
            OSError: The disk refused, or an entry cannot be read any more; nothing has changed.
        """
        old, (_, kept_bytes) = self._segment, self._synced
        data = bytearray(self.read(old, kept_bytes, self._sizes[old] - kept_bytes))
        table = {reference: replace(item) for reference, item in self._state.table.items()}
        last_ranks: dict[int, int] = {}
        headers = self._headers(data, self._sizes[old] - kept_bytes, old)
        for _, header in reversed(headers):
            if not header.is_control:  # the snapshot is that of the time before it
                reference = header.producer_id
                next_rank = table[reference].next_rank
                table[reference].next_rank = next_rank - (next_rank - header.base_sequence & RANK_MASK)
                last_ranks.setdefault(reference, table[reference].next_rank + header.last_offset_delta)
        offset = headers[0][1].base_offset if headers else self.next_offset
        for position, header in headers:
            assign_offset(memoryview(data)[position:], header.base_offset + 1, self.mark)
        snapshot_bytes = self._begin_segment(offset, table, data)
        self.next_offset += 1
        self._last_ranks[self._segment] = last_ranks
        self._failure = None
        self._is_synced = True
        with suppress(OSError):  # else what is behind is known to belong to the new one
            self._disk.truncate(self._disk.create(self._path(old)), kept_bytes)
            self._sizes[old] = kept_bytes
        return MovedEntries(old, kept_bytes, self._segment, snapshot_bytes - kept_bytes)

    def _headers(self, data: bytearray, size: int, segment: int) -> list[tuple[int, BatchHeader]]:
        """Return the position and header of each entry. Raises OSError: one of them is damaged."""
        found: list[tuple[int, BatchHeader]] = []
        position = 0
        while position < size:
            header = valid_batch_at(memoryview(data), position, segment)
            if header is None:
                raise OSError(errno.EIO, "what was written last cannot be read any more", self._path(segment))
            found.append((position, header))
            position += header.size_bytes
        return found

    def read(self, segment: int, position: int, size_bytes: int) -> bytes:
        """Return the bytes of an entry.

        Raises:
            OSError: The disk refused.
        """
        file = self._read_files.get(segment)
        if file is None:
            file = self._read_files[segment] = self._open(segment)
        return os.pread(file.fd, size_bytes, position)

    def note_damage(self, segment: int) -> None:
        """Note that an entry of a segment cannot be read: the file is put aside, not removed, when it is free."""
        self.recovered.damaged.add(segment)

    def free(self) -> None:
        """Remove the segments whose records are all resolved, when the disk has the entry that says so.

        Raises:
            OSError: The disk refused, or the journal has failed.
        """
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
            self._read_files.pop(offset, None)
            if offset in self.recovered.damaged:
                self._disk.rename(self._path(offset), self._path(offset) + DAMAGED_SUFFIX)
            else:
                self._disk.unlink(self._path(offset))
            del self._sizes[offset], self._last_ranks[offset]
        self._reserve.take()

    def close(self) -> None:
        """Give the slot to others. Nothing is written: a closed journal and one of a killed process are the same."""
        self._failure = OSError(errno.EBADF, "the journal is closed", self.directory)
        os.close(self._lock.fd)
        self._lock.fd = -1

    def _open(self, offset: int) -> LogFile:
        return open_for_read(self._path(offset))

    def _path(self, offset: int) -> str:
        return os.path.join(self.directory, segment_name(offset))

    def _check(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, f"the journal has failed before: {self._failure}", self.directory)

    def _repair(self) -> None:
        """Cut the torn tails, and put aside a segment that has no entry at all."""
        recovered = self.recovered
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

    def _begin_segment(self, offset: int, table: dict[int, SpooledPartition], entries: BytesLike = b"") -> int:
        """Begin a segment with all that is known: it is on the disk, with its name, before anything follows.

        Args:
            offset: Its first one.
            table: The partitions as they are before its entries.
            entries: What it has behind the snapshot; the first has the offset `offset` + 1.

        Returns: The size of the snapshot.
        """
        snapshot = store_control(snapshot_entry(self._state.slot, table), offset, self.mark, self._state.contact_ms)
        file = self._disk.create(self._path(offset))
        try:
            self._disk.truncate(file, 0)
            write_at(self._disk, file, bytes(snapshot) + bytes(entries), 0)
            self._disk.fdatasync(file)
            self._disk.sync_dir(self.directory)
        except OSError:
            self._disk.unlink(self._path(offset))
            raise
        size = len(snapshot) + len(entries)
        self._file, self._segment = file, offset
        self._sizes[offset], self._last_ranks[offset] = size, {}
        self._synced = offset, size
        return len(snapshot)

    def _begin_next_segment(self) -> None:
        self._begin_segment(self.next_offset, self._state.table)
        self.next_offset += 1

    def _append_control(self, control: Control) -> None:
        entry = store_control(control, self.next_offset, self.mark, self._state.contact_ms)
        try:
            self._write(entry)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._reserve.give():
                raise
            self._write(entry)
        self._state.apply(control)
        self.next_offset += 1

    def _write(self, entry: BytesLike) -> None:
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
        self._is_synced = False
