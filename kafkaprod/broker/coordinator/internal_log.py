"""A coordinator's log: one partition of an internal topic, read at start, appended to and rewritten after that.

It is made at the first append, if FindCoordinator has not made it. The control thread owns it. Each append is synced
before it returns, if the flush policy syncs before answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, parse_marker
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.broker.storage.log.segments import ReadResult
from kafkaprod.broker.storage.producers.producer_state import VerificationToken
from kafkaprod.storage.batch_header import HEADER_BYTES, BatchHeader, parse_header
from kafkaprod.storage.internal_records import NOT_TRANSACTIONAL, KeyValue, TransactionOwner, build_batch

_READ_BYTES = 1024 * 1024
_BATCH_RECORDS = 1000
_COMPACT_ABOVE_BYTES = 32 * 1024 * 1024


class LoggedRecord(NamedTuple):
    """A record of the log. `header` is its batch's."""

    offset: int
    key: bytes
    value: bytes | None
    header: BatchHeader


class LoggedMarker(NamedTuple):
    """A transaction marker of the log. `header` is its batch's."""

    marker: EndTransactionMarker
    header: BatchHeader


class CoordinatorLog(Protocol):
    """What a coordinator needs of its log; a `PartitionLog` has it."""

    @property
    def log_start_offset(self) -> int:
        """The first offset."""

    @property
    def log_end_offset(self) -> int:
        """One past the last offset."""

    @property
    def size_bytes(self) -> int:
        """Bytes of records."""

    @property
    def latest_epoch(self) -> int:
        """The leader epoch to append in, -1 for the first."""

    def read(self, offset: int, max_bytes: int, upper_bound: int | None = None) -> ReadResult:
        """Return batches from the one that contains an offset."""

    def append_internal(
        self, records: bytearray | memoryview, leader_epoch: int, token: VerificationToken | None = None
    ) -> AppendResult:
        """Append a batch."""

    def commit(self, offset: int) -> None:
        """Return when what lies below an offset may be acknowledged."""

    def delete_records(self, offset: int) -> int:
        """Drop what lies below an offset."""


class InternalLog:
    """See the module docstring."""

    def __init__(self, log: CoordinatorLog | None, make_log: Callable[[], CoordinatorLog]) -> None:
        """Wrap a partition.

        Args:
            log: None if there is none yet.
            make_log: Makes it, at the first append.
        """
        self._log = log
        self._make_log = make_log

    def replay(self) -> Iterator[LoggedRecord | LoggedMarker]:
        """Read everything, from the start.

        Raises:
            LogError: CORRUPT_MESSAGE, the log is damaged.
            CorruptDataError: A record or marker of it is.
        """
        log = self._log
        offset = 0 if log is None else log.log_start_offset
        while log is not None and offset < log.log_end_offset:
            records = log.read(offset, _READ_BYTES, log.log_end_offset).records
            if records is None:
                return
            view = memoryview(records.read())
            while len(view) >= HEADER_BYTES:
                header = parse_header(view)
                if len(view) < header.size_bytes:
                    break  # cut by the size of the read: the next one begins here
                yield from _read_batch(view[: header.size_bytes], header)
                offset = header.last_offset + 1
                view = view[header.size_bytes :]

    def append(
        self,
        records: Iterable[KeyValue],
        now_ms: int,
        writer: TransactionOwner = NOT_TRANSACTIONAL,
        token: VerificationToken | None = None,
    ) -> int:
        """Append records and commit them; return the offset of the first one.

        Args:
            records: In order; more than fit into one batch become several.
            now_ms: Wall time.
            writer: The producer in whose transaction they are.
            token: The one of the transaction's verification, None without one.

        Raises:
            RecordsRefusedError: The transaction takes no more records; nothing was appended.
            LogError: The log takes no appends; a part may be in it.
        """
        first_offset, end_offset = self._append(records, now_ms, writer, token)
        if self._log is not None and end_offset > first_offset:
            self._log.commit(end_offset)
        return first_offset

    def is_outgrown(self, needed_bytes: int) -> bool:
        """Return whether the log should be rewritten: it is larger than 32 MiB + 4 × what the present state needs."""
        return self._log is not None and self._log.size_bytes > _COMPACT_ABOVE_BYTES + 4 * needed_bytes

    def rewrite(self, parts: Iterable[tuple[TransactionOwner, Iterable[KeyValue]]], now_ms: int) -> int:
        """Write the present state to the end of the log and drop all that was before; return the new first offset.

        Args:
            parts: The state: records and the transaction they are in.
            now_ms: Wall time.

        Raises:
            LogError: The log takes no appends; it is as it was, or longer.
        """
        log = self._log
        if log is None:
            return 0
        start_offset = end_offset = log.log_end_offset
        for writer, records in parts:
            _, end_offset = self._append(records, now_ms, writer)
        log.commit(end_offset)
        log.delete_records(start_offset)
        return start_offset

    def _append(
        self,
        records: Iterable[KeyValue],
        now_ms: int,
        writer: TransactionOwner,
        token: VerificationToken | None = None,
    ) -> tuple[int, int]:
        if self._log is None:
            self._log = self._make_log()
        log, left = self._log, iter(records)
        first_offset = end_offset = log.log_end_offset
        while part := list(islice(left, _BATCH_RECORDS)):
            batch = build_batch(part, now_ms, writer)
            end_offset = log.append_internal(batch, max(log.latest_epoch, 0), token).last_offset + 1
        return first_offset, end_offset


def _read_batch(batch: memoryview, header: BatchHeader) -> Iterator[LoggedRecord | LoggedMarker]:
    if header.is_control:
        marker = parse_marker(batch, header)
        if marker is not None:
            yield LoggedMarker(marker, header)
        return
    for record in iterate_records(batch):
        yield LoggedRecord(record.offset, record.key or b"", record.value, header)
