"""The table of committed offsets and the records of groups, kept on disk as the topic `__consumer_offsets`.

A commit is appended (and synced, if the flush policy syncs before answers) before it enters the table. At start the log
is read from its start, with the markers that decide transactions. When the log has grown far beyond the table, the
table is written to its end and everything before is dropped. The control thread owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from kafkaprod.broker.coordinator import classic_records, consumer_records
from kafkaprod.broker.coordinator.internal_log import CoordinatorLog, InternalLog, LoggedMarker, LoggedRecord
from kafkaprod.broker.coordinator.offsets import (
    OffsetCommitValue,
    OffsetKey,
    OffsetTable,
    decode_offset,
    encode_offsets,
)
from kafkaprod.broker.storage.producers.producer_state import VerificationToken
from kafkaprod.storage.internal_records import NOT_TRANSACTIONAL, KeyValue, TransactionOwner
from kafkaprod.structs import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
"""Where the offsets of all groups are."""

_ENTRY_BYTES = 128  # about what one entry takes in the log

OffsetChange = tuple[OffsetKey, OffsetCommitValue | None]


class OffsetLog:
    """See the module docstring.

    Attributes:
        table: What is committed; read it freely, change it through `write` and `end_transaction` only.
        group_records: Group id -> key -> value, of consumer groups; change them through `write_group_records` only.
        classic_groups: Group id -> value, of classic groups; the same.
    """

    def __init__(self, log: CoordinatorLog | None, make_log: Callable[[], CoordinatorLog]) -> None:
        """Read the log.

        Args:
            log: None if there is none yet.
            make_log: Makes it, at the first write.

        Raises:
            LogError: CORRUPT_MESSAGE, the log is damaged.
            CorruptDataError: A record of it is.
        """
        self.table = OffsetTable()
        self.group_records: dict[str, dict[bytes, bytes]] = {}
        self.classic_groups: dict[str, bytes] = {}
        self._epochs: dict[int, int] = {}  # of the producers with open transactions
        self._log = InternalLog(log, make_log)
        for entry in self._log.replay():
            if isinstance(entry, LoggedMarker):
                self.end_transaction(entry.header.producer_id, is_commit=entry.marker.is_commit)
            else:
                self._apply(entry)

    def write(
        self,
        changes: Sequence[OffsetChange],
        now_ms: int,
        writer: TransactionOwner = NOT_TRANSACTIONAL,
        token: VerificationToken | None = None,
    ) -> None:
        """Make changes durable, then visible; those of a transaction stay pending until it ends.

        Args:
            changes: Offsets to set, None to remove one; a transaction removes none.
            now_ms: By the wall clock.
            writer: The producer whose transaction the changes are in.
            token: The one of the transaction's verification, None without one.

        Raises:
            RecordsRefusedError: INVALID_PRODUCER_EPOCH, the producer has been fenced; INVALID_TXN_STATE, the
                transaction has ended while it was verified. Nothing was changed.
            LogError: The log takes no appends; the table is unchanged.
        """
        if not changes:
            return
        first_offset = self._log.append(encode_offsets(changes), now_ms, writer, token)
        for record_offset, (key, committed) in enumerate(changes, first_offset):
            self._put(writer, key, committed, record_offset)

    def write_group_records(self, records: Sequence[KeyValue], now_ms: int) -> None:
        """Make records of groups durable, then visible.

        A classic group of which a record of a consumer group comes is removed in the same batch.

        Raises:
            LogError: The log takes no appends; `group_records` and `classic_groups` are unchanged.
        """
        upgraded = {
            record_key.group_id: None
            for raw_key, value in records
            if value is not None and (record_key := consumer_records.decode_key(raw_key)) is not None
        }
        gone = [classic_records.group_tombstone(group_id) for group_id in upgraded if group_id in self.classic_groups]
        records = [*gone, *records]
        if records:
            self._log.append(records, now_ms)
        for key, value in records:
            self._apply_group_record(key, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop the pending offsets of a producer whose marker is in the log."""
        self._epochs.pop(producer_id, None)
        self.table.end_transaction(producer_id, is_commit=is_commit)

    def maybe_compact(self, now_ms: int) -> bool:
        """Rewrite the log if most of it is out of date; return whether that was done.

        Raises:
            LogError: The log takes no appends; it is as it was, or longer.
        """
        group_bytes = sum(
            len(key) + len(value) for records in self.group_records.values() for key, value in records.items()
        ) + sum(map(len, self.classic_groups.values()))
        if not self._log.is_outgrown(_ENTRY_BYTES * len(self.table) + group_bytes):
            return False
        first_offset = self._log.rewrite(self._parts(), now_ms)
        for record_offset, (producer_id, key, committed) in enumerate(self.table.in_log_order(), first_offset):
            self._put(self._writer(producer_id), key, committed, record_offset)
        return True

    def _parts(self) -> Iterator[tuple[TransactionOwner, list[KeyValue]]]:
        """The table in the order of its records: a pending offset stays behind what it may replace. Then the groups.

        `maybe_compact` relies on the offsets being first.
        """
        for producer_id, run in groupby(self.table.in_log_order(), key=lambda entry: entry[0]):
            yield self._writer(producer_id), encode_offsets((key, committed) for _, key, committed in run)
        for records in self.group_records.values():
            yield NOT_TRANSACTIONAL, list(records.items())
        for group_id, value in self.classic_groups.items():
            yield NOT_TRANSACTIONAL, [(classic_records.encode_key(group_id), value)]

    def _writer(self, producer_id: int) -> TransactionOwner:
        return (
            TransactionOwner(producer_id, self._epochs[producer_id])
            if producer_id in self._epochs
            else NOT_TRANSACTIONAL
        )

    def _apply(self, record: LoggedRecord) -> None:
        change = decode_offset(record.key, record.value)
        if change is None:
            self._apply_group_record(record.key, record.value)
        else:
            header = record.header
            is_pending = header.is_transactional
            writer = TransactionOwner(header.producer_id, header.producer_epoch) if is_pending else NOT_TRANSACTIONAL
            self._put(writer, *change, record.offset)

    def _apply_group_record(self, raw_key: bytes, value: bytes | None) -> None:
        classic_id = classic_records.decode_key(raw_key)
        if classic_id is not None and value is not None:
            self.classic_groups[classic_id] = value
        elif classic_id is not None:
            self.classic_groups.pop(classic_id, None)
        key = consumer_records.decode_key(raw_key)
        if key is None:
            return
        if value is not None:
            self.group_records.setdefault(key.group_id, {})[raw_key] = value
        elif key.group_id in self.group_records:
            self.group_records[key.group_id].pop(raw_key, None)
            if not self.group_records[key.group_id]:
                del self.group_records[key.group_id]

    def _put(
        self, writer: TransactionOwner, key: OffsetKey, committed: OffsetCommitValue | None, record_offset: int
    ) -> None:
        if writer == NOT_TRANSACTIONAL or committed is None:
            self.table.put(key, committed, record_offset)
        else:
            self._epochs[writer.producer_id] = writer.epoch
            self.table.put_pending(writer.producer_id, key, committed, record_offset)
