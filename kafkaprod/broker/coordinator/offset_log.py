"""The table of committed offsets, kept on disk as the internal topic `__consumer_offsets`.

A commit is appended (and synced, if the flush policy says so) before it enters the table. At start the log is read
from its start. When the log has grown far beyond the table, the table is written to its end and everything before is
dropped: a compaction of the whole log in one step. The control thread owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from kafkaprod.broker.coordinator.internal_records import build_batch
from kafkaprod.broker.coordinator.offsets import CommittedOffset, OffsetKey, OffsetTable, decode_offset, encode_offsets
from kafkaprod.broker.storage.log.batch_header import HEADER_BYTES, parse_header
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.records import iterate_records

OFFSETS_TOPIC = "__consumer_offsets"

_LEADER_EPOCH = 0
_READ_BYTES = 1024 * 1024
_BATCH_ENTRIES = 1000
_COMPACT_ABOVE_BYTES = 32 * 1024 * 1024
_ENTRY_BYTES = 128  # about what one entry takes in the log

Change = tuple[OffsetKey, CommittedOffset | None]


class OffsetLog:
    """See the module docstring.

    Attributes:
        table: what is committed; read it freely, change it through `write` only.
    """

    def __init__(self, log: PartitionLog | None, make_log: Callable[[], PartitionLog]) -> None:
        """Read the log.

        Args:
            log: None if there is none yet.
            make_log: makes it, at the first write.

        Raises:
            LogError: 2, the log is damaged.
            CorruptDataError: a record of it is.
        """
        self.table = OffsetTable()
        self._log = log
        self._make_log = make_log
        for key, committed in _read_changes(log) if log is not None else ():
            self.table.put(key, committed)

    def write(self, changes: Sequence[Change], now_ms: int) -> None:
        """Make changes durable, then visible. `now_ms` by the wall clock.

        Raises:
            LogError: the log takes no appends; the table is unchanged.
        """
        if not changes:
            return
        self._append(changes, now_ms)
        for key, committed in changes:
            self.table.put(key, committed)

    def maybe_compact(self, now_ms: int) -> bool:
        """Rewrite the log if most of it is out of date; return whether that was done.

        Raises:
            LogError: the log takes no appends; it is as it was, or longer.
        """
        log = self._log
        if log is None or log.size_bytes <= _COMPACT_ABOVE_BYTES + 4 * _ENTRY_BYTES * len(self.table):
            return False
        start_offset = log.log_end_offset
        self._append(self.table.items(), now_ms)
        log.delete_records(start_offset)
        return True

    def _append(self, changes: Iterable[Change], now_ms: int) -> None:
        if self._log is None:
            self._log = self._make_log()
        entries = iter(changes)
        end_offset = self._log.log_end_offset
        while part := list(islice(entries, _BATCH_ENTRIES)):
            batch = build_batch(encode_offsets(part), now_ms)
            end_offset = self._log.append_internal(batch, _LEADER_EPOCH).last_offset + 1
        self._log.commit(end_offset)


def _read_changes(log: PartitionLog) -> Iterator[Change]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, _READ_BYTES, log.log_end_offset).records
        if records is None:
            return
        view = memoryview(records.read())
        while len(view) >= HEADER_BYTES:
            header = parse_header(view)
            if len(view) < header.size_bytes:
                break  # cut by the size of the read: the next one begins here
            if not header.is_control:
                yield from _decode_batch(view[: header.size_bytes])
            offset = header.last_offset + 1
            view = view[header.size_bytes :]


def _decode_batch(batch: memoryview) -> Iterator[Change]:
    for record in iterate_records(batch):
        change = decode_offset(record.key or b"", record.value)
        if change is not None:
            yield change
