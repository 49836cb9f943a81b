"""A replica's log as a list of real batches: what transactions and coordinators need beyond `SimulatedLog`.

Appends go through the broker's own `log_appends`, for which the log is the store; the state of producers, the index of
aborted transactions and the rule of the last stable offset are the broker's, too. Only the bytes are in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, build_marker, parse_marker
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction, TransactionIndex
from kafkaprod.broker.storage.log import log_appends
from kafkaprod.broker.storage.log.append_validation import validate_client_batch
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.broker.storage.log.readable_log import ReadableLog
from kafkaprod.broker.storage.log.segments import ReadResult
from kafkaprod.broker.storage.producers.producer_state import UNGUARDED, TransactionGuard, VerificationToken
from kafkaprod.clock import Clock
from kafkaprod.storage.batch_header import BatchHeader
from tests.simulation.logs import SimulatedBatch, SimulatedLog, values_of

COMMIT_MARK, ABORT_MARK = -1, -2
"""The values that stand for markers."""
_LAST_STABLE_OFFSET: Any = ReadableLog.last_stable_offset


class Range(NamedTuple):
    """What stands for a range of a log file in an answer: whole batches."""

    data: bytes

    @property
    def length(self) -> int:
        """The number of bytes."""
        return len(self.data)

    def read(self) -> bytes:
        """Return the bytes."""
        return self.data


class _Index(TransactionIndex):
    """The index of aborted transactions, without its file."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None), "")

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries.append(aborted)


class BatchLog(SimulatedLog):
    """See the module docstring. It is `PartitionLog` for handlers, and `LogStore` for `log_appends`.

    Attributes:
        on_marker: Called when a marker was written by the leader.
    """

    directory = "memory"

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.on_marker: Callable[[], None] = _nothing
        self._lock = nullcontext()
        self._environment = SimpleNamespace(clock=clock)
        self._index = _Index()
        self.segments = SimpleNamespace(
            active=SimpleNamespace(append_aborted=self._index.append),
            collect_aborted=lambda offset, end: self._index.collect(offset, end)[0],
        )

    @property
    def _store(self) -> BatchLog:
        return self

    @property
    def log_end_offset(self) -> int:
        """See `PartitionLog`."""
        return self.end_offset

    @property
    def latest_epoch(self) -> int:
        """See `PartitionLog`."""
        return self.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        """Few: nothing is compacted here."""
        return 0

    @property
    def last_stable_offset(self) -> int:
        """See `ReadableLog`."""
        return int(_LAST_STABLE_OFFSET.fget(self))

    has_open_transaction = ReadableLog.has_open_transaction
    verification_token = ReadableLog.verification_token
    internal_token = ReadableLog.internal_token
    aborted_transactions = ReadableLog.aborted_transactions

    @property
    def high_watermark(self) -> int:
        """See `ReplicaLog`."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if offset != self._high_watermark:
            self._high_watermark = offset
            self.producers.on_high_watermark(offset)
            self.on_advance()

    # -- appends -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        guard: TransactionGuard = UNGUARDED,
        max_bytes_now: int | None = None,
    ) -> AppendResult:
        """See `PartitionLog.append`."""
        valid = validate_client_batch(memoryview(records), self.config, self._clock.wall_ms(), max_bytes_now)
        return log_appends.append_produced(cast(Any, self), valid, leader_epoch, guard)

    def append_internal(
        self, records: bytearray | memoryview, leader_epoch: int, token: VerificationToken | None = None
    ) -> AppendResult:
        """See `PartitionLog.append_internal`."""
        return log_appends.append_internal(cast(Any, self), memoryview(records), leader_epoch, token)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        leader_epoch: int,
        transaction_version: int = 0,
    ) -> AppendResult:
        """See `PartitionLog.append_marker`."""
        batch = memoryview(build_marker(producer_id, producer_epoch, marker, self._clock.wall_ms()))
        appended = log_appends.append_marker(cast(Any, self), batch, marker, leader_epoch, transaction_version)
        self.on_marker()
        return appended

    def commit(self, offset: int) -> None:
        """See `PartitionLog.commit`: the flush policy is not to wait."""

    def write(self, batch: memoryview, header: BatchHeader) -> None:
        """See `LogStore.write`; the caller notes what it means for producers."""
        data = bytes(batch)
        values = _values_of(data, header)
        self._take(
            SimulatedBatch(
                header.base_offset,
                header.partition_leader_epoch,
                header.producer_id,
                header.base_sequence,
                values,
                header,
                data,
            )
        )

    def _append(self, batch: SimulatedBatch) -> None:
        self._take(batch)
        self._note(batch)

    def _take(self, batch: SimulatedBatch) -> None:
        self.batches.append(batch)
        self._bases.append(batch.base_offset)
        self.values += batch.values
        self.end_offset = batch.end_offset
        self.epochs.assign(batch.leader_epoch, batch.base_offset)

    def _note(self, batch: SimulatedBatch) -> None:
        assert batch.header is not None
        marker = parse_marker(memoryview(batch.data), batch.header) if batch.header.is_control else None
        aborted = self.producers.replay(batch.header, marker)
        if aborted is not None:
            self._index.append(aborted)

    def _rebuild_producers(self) -> None:
        self._index.entries = []
        super()._rebuild_producers()
        self.producers.on_high_watermark(self._high_watermark)

    # -- reads ---------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, upper_bound: int | None = None, *, min_one_batch: bool = True
    ) -> ReadResult:
        """Return the batches from the one that contains `offset`; see `PartitionLog.read`."""
        self._check_offset(offset)
        bound = self.high_watermark if upper_bound is None else upper_bound
        data = bytearray()
        end_offset = offset
        for batch in self._batches_from(offset):
            is_first = not data
            fits = len(data) + len(batch.data) <= max_bytes or (is_first and min_one_batch)
            if batch.base_offset >= bound or not fits:
                break
            data += batch.data
            end_offset = batch.end_offset
        return ReadResult(cast(Any, Range(bytes(data))) if data else None, offset, end_offset)


def _nothing() -> None:
    """Precedes what wants to know."""


def _values_of(data: bytes, header: BatchHeader) -> tuple[int, ...]:
    """Return what stands for a batch's records: their numbers, a marker's kind, or a checksum of internal ones."""
    view = memoryview(data)
    if header.is_control:
        marker = parse_marker(view, header)
        return (COMMIT_MARK if marker is not None and marker.is_commit else ABORT_MARK,)
    if header.base_sequence < 0:
        return tuple(zlib.crc32((record.key or b"") + b"=" + (record.value or b"")) for record in iterate_records(view))
    return values_of(view)
