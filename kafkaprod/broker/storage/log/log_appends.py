"""The ways into the log for a batch: from a client, a coordinator, as a transaction marker, from the partition's
leader.

Functions over a `LogStore`; the caller holds the partition's lock. Each checks first and changes state only when the
batch is written. All raise OSError or PartitionFencedError as `LogStore.write` does.
Source: Kafka storage, UnifiedLog.append; Kafka core, Partition.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.log.append_validation import ValidBatch
from kafkaprod.broker.storage.log.log_store import LogStore
from kafkaprod.broker.storage.producers.producer_state import TransactionGuard, VerificationToken
from kafkaprod.broker.storage.recovery.segment_scan import split_batch
from kafkaprod.errors import CorruptDataError, IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.batch_checks import follows
from kafkaprod.storage.batch_header import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    assign_offset,
    parse_header,
)


class AppendResult(NamedTuple):
    """Where a batch is in the log.

    Attributes:
        log_append_time_ms: The broker's timestamp on LogAppendTime topics, else -1.
        is_duplicate: The batch was in the log already; nothing was written. It still has to be committed.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


def append_produced(store: LogStore, valid: ValidBatch, leader_epoch: int, guard: TransactionGuard) -> AppendResult:
    """Append a client's batch that passed its own checks, after those against the producer's state.

    Raises:
        RecordsRefusedError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
    """
    if valid.header.producer_id != NO_PRODUCER_ID:
        duplicate = store.producers.find_duplicate(valid.header)
        if duplicate is not None:
            time = duplicate.timestamp if store.config.uses_log_append_time else NO_TIMESTAMP
            return AppendResult(duplicate.first_offset, duplicate.last_offset, time, store.log_start_offset, True)
        store.producers.check(valid.header, guard)
    header = _write(store, valid.data, valid.header, leader_epoch)
    store.producers.add(header, header.base_offset)
    return _result(store, header)


def append_internal(
    store: LogStore, batch: memoryview, leader_epoch: int, token: VerificationToken | None
) -> AppendResult:
    """Append a coordinator's batch, which has no sequence.

    Raises:
        RecordsRefusedError: INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
    """
    header = parse_header(batch)
    if header.producer_id != NO_PRODUCER_ID:
        store.producers.check_internal(header, token)
    header = _write(store, batch, header, leader_epoch)
    store.producers.add(header, header.base_offset)
    return _result(store, header)


def append_marker(
    store: LogStore, batch: memoryview, marker: EndTransactionMarker, leader_epoch: int, transaction_version: int
) -> AppendResult:
    """Append a transaction marker.

    Raises:
        RecordsRefusedError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
    """
    header = parse_header(batch)
    store.producers.check_marker(header, marker, transaction_version)
    header = _write(store, batch, header, leader_epoch)
    completed = store.producers.add_marker(header, marker, header.base_offset, transaction_version)
    if completed is not None and completed.is_aborted:
        store.segments.active.append_aborted(store.producers.aborted(completed))
    return _result(store, header)


def append_replicated(store: LogStore, records: memoryview) -> int:
    """Append a leader's batches, offsets and epochs as given; return the new log end offset.

    Raises:
        RecordsRefusedError: CORRUPT_MESSAGE; the batches before the bad one are in the log.
    """
    while len(records):
        try:
            cut = split_batch(records, store.log_end_offset)
        except CorruptDataError as error:
            raise RecordsRefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if cut is None:
            break
        batch, header, marker, records = cut
        if not follows(header, store.log_end_offset, is_dense=False):
            raise RecordsRefusedError(
                ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} is below the log end {store.log_end_offset}"
            )
        store.write(batch, header)
        aborted = store.producers.replay(header, marker)
        if aborted is not None:
            store.segments.active.append_aborted(aborted)
    return store.log_end_offset


def _write(store: LogStore, batch: memoryview, header: BatchHeader, leader_epoch: int) -> BatchHeader:
    """Give the batch its offset and epoch, in place, and write it."""
    base_offset, latest = store.log_end_offset, store.epochs.latest_epoch
    if leader_epoch < latest:
        raise IllegalStateError(f"leader epoch {leader_epoch} of {store.directory} is below {latest}")
    assign_offset(batch, base_offset, leader_epoch)
    header = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
    store.write(batch, header)
    return header


def _result(store: LogStore, header: BatchHeader) -> AppendResult:
    time = header.max_timestamp if store.config.uses_log_append_time else NO_TIMESTAMP
    return AppendResult(header.base_offset, header.last_offset, time, store.log_start_offset, False)
