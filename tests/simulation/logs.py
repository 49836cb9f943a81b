"""A replica's log as a list, with a mark up to which it is on disk.

It implements `ReplicaLog` for replication, and what the handlers of Produce, Fetch and ListOffsets use of
`PartitionLog`: the batches of a
real producer pass the broker's own checks, and its state of producers says which of them repeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from kafkaprod.broker.replication.replica_log import ReplicaBatch
from kafkaprod.broker.storage.errors import LogDirectoryFailedError, OffsetOutOfRangeError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log.append_validation import validate_client_batch
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.broker.storage.log.segments import ReadResult
from kafkaprod.broker.storage.producers.producer_state import UNGUARDED, ProducerState, TransactionGuard
from kafkaprod.broker.storage.recovery.leader_epochs import EpochStart, LeaderEpochs
from kafkaprod.clock import Clock
from kafkaprod.storage.batch_header import NO_PRODUCER_ID, BatchHeader


@dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """A batch: the values of its records, from a producer with a sequence (-1: not idempotent).

    Attributes:
        header: Of a batch that a real producer sent.
        data: Its bytes, in a `BatchLog`.
    """

    base_offset: int
    leader_epoch: int
    producer: int
    sequence: int
    values: tuple[int, ...]
    header: BatchHeader | None = None
    data: bytes = b""

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self.base_offset + len(self.values)


class SimulatedSlice(NamedTuple):
    """What stands for a range of a log file in an answer: where it begins, and the values of its records."""

    first_offset: int
    values: tuple[int, ...]

    @property
    def length(self) -> int:
        """Bytes, eight for a record and for the offset."""
        return 8 * (1 + len(self.values))

    def read(self) -> bytes:
        """Return the bytes."""
        return b"".join(number.to_bytes(8, "big") for number in (self.first_offset, *self.values))

    @classmethod
    def of(cls, data: bytes) -> SimulatedSlice:
        """Return what was read."""
        numbers = [int.from_bytes(data[place : place + 8], "big") for place in range(0, len(data), 8)]
        return cls(numbers[0], tuple(numbers[1:]))


class SimulatedLog:
    """See the module docstring. What lies behind `synced_offset` is lost in a power cut.

    Attributes:
        values: Of all records, by offset.
        sequences: The offsets of each simple producer's sequences.
        producers: State of the real producers.
        on_advance: Called when the high watermark moves.
    """

    config = LogConfig()
    is_offline = False  # see `disk_day`

    def __init__(self, clock: Clock) -> None:
        self.batches: list[SimulatedBatch] = []
        self.values: list[int] = []
        self.end_offset = 0
        self.saved_watermark = 0
        self.synced_offset = 0
        self.epochs = LeaderEpochs()
        self.sequences: dict[int, dict[int, int]] = {}
        self.producers = ProducerState()
        self.on_advance: Callable[[], None] = _nothing
        self.log_start_offset = 0
        self._bases: list[int] = []
        self._clock = clock
        self._high_watermark = 0

    @property
    def high_watermark(self) -> int:
        """See `ReplicaLog`."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if offset != self._high_watermark:
            self._high_watermark = offset
            self.on_advance()

    def begin_leader_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.end_offset)

    def append_as_leader(self, epoch: int, producer: int, sequence: int, value: int) -> int:
        """Append one record of a simple producer; return the end offset behind it."""
        self._append(SimulatedBatch(self.end_offset, epoch, producer, sequence, (value,)))
        return self.end_offset

    def append(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        guard: TransactionGuard = UNGUARDED,
        max_bytes_now: int | None = None,
    ) -> AppendResult:
        """Append a real producer's batch; see `PartitionLog.append`."""
        self._check_disk()
        valid = validate_client_batch(memoryview(records), self.config, self._clock.wall_ms(), max_bytes_now)
        header = valid.header
        if header.producer_id != NO_PRODUCER_ID:
            known = self.producers.find_duplicate(header)
            if known is not None:
                return AppendResult(known.first_offset, known.last_offset, -1, self.log_start_offset, True)
            self.producers.check(header, guard)
        base_offset = self.end_offset
        values = values_of(valid.data)
        header = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
        sequence = header.base_sequence
        self._append(SimulatedBatch(base_offset, leader_epoch, header.producer_id, sequence, values, header))
        return AppendResult(base_offset, self.end_offset - 1, -1, self.log_start_offset, False)

    def append_replicated(self, batch: ReplicaBatch) -> None:
        assert isinstance(batch, SimulatedBatch)
        assert batch.base_offset == self.end_offset, f"batch at {batch.base_offset}, log ends at {self.end_offset}"
        self._append(batch)

    def read_batches(self, offset: int, max_batches: int) -> tuple[SimulatedBatch, ...]:
        self._check_disk()
        return tuple(self._batches_from(offset)[:max_batches])

    def batch_at(self, base_offset: int) -> SimulatedBatch | None:
        """Return the batch that begins at an offset."""
        place = bisect_right(self._bases, base_offset) - 1
        return self.batches[place] if place >= 0 and self._bases[place] == base_offset else None

    def truncate_to(self, end_offset: int) -> None:
        assert self.log_start_offset <= end_offset <= self.end_offset
        if end_offset < self.end_offset:
            while self.batches and self.batches[-1].end_offset > end_offset:
                self.batches.pop()
                self._bases.pop()
            end_offset = self.batches[-1].end_offset if self.batches else self.log_start_offset
            del self.values[end_offset - self.log_start_offset :]
            self.end_offset = end_offset
            self._rebuild_producers()
        self.epochs.truncate_from_end(end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)

    def restart_at(self, offset: int) -> None:
        self.batches, self.values, self._bases = [], [], []
        self.log_start_offset = self.end_offset = self.synced_offset = self.high_watermark = offset
        self.epochs = LeaderEpochs()
        self._rebuild_producers()

    def raise_log_start(self, offset: int) -> None:
        assert all(batch.end_offset <= offset or batch.base_offset >= offset for batch in self.batches)
        del self.values[: offset - self.log_start_offset]
        self.batches = [batch for batch in self.batches if batch.base_offset >= offset]
        self._bases = [batch.base_offset for batch in self.batches]
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)

    def read(
        self, offset: int, max_bytes: int, upper_bound: int | None = None, *, min_one_batch: bool = True
    ) -> ReadResult:
        """Return the records from an offset on; see `PartitionLog.read`."""
        self._check_disk()
        self._check_offset(offset)
        bound = self.high_watermark if upper_bound is None else upper_bound
        first, behind = offset - self.log_start_offset, min(bound, self.end_offset) - self.log_start_offset
        values = tuple(self.values[first : min(behind, first + max(max_bytes // 8, int(min_one_batch)))])
        found = SimulatedSlice(offset, values) if values else None
        return ReadResult(cast(Any, found), offset, offset + len(values))

    def _check_offset(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is outside {self.log_start_offset}..{self.end_offset}")

    def _batches_from(self, offset: int) -> list[SimulatedBatch]:
        """Return the batches from the one that holds an offset on."""
        found = self.batches[max(bisect_right(self._bases, offset) - 1, 0) :]
        return found if found and found[0].end_offset > offset else []

    @property
    def last_stable_offset(self) -> int:
        """The producers here have no transactions."""
        return self.high_watermark

    def value_at(self, offset: int) -> int | None:
        """Return the value at an offset, None outside of the log."""
        place = offset - self.log_start_offset
        return self.values[place] if 0 <= place < len(self.values) else None

    def restart_process(self, *, power_was_cut: bool) -> None:
        """Become what a new process finds on disk."""
        if power_was_cut:
            self.truncate_to(max(self.synced_offset, self.log_start_offset))
        self.on_advance = _nothing
        self.high_watermark = min(max(self.saved_watermark, self.log_start_offset), self.end_offset)
        self.epochs = LeaderEpochs([EpochStart(*entry) for entry in self.epochs.entries])
        self._rebuild_producers()

    def _check_disk(self) -> None:
        if self.is_offline:
            raise LogDirectoryFailedError("the disk is broken")

    def _append(self, batch: SimulatedBatch) -> None:
        self._check_disk()
        self.batches.append(batch)
        self._bases.append(batch.base_offset)
        self.values += batch.values
        self.end_offset = batch.end_offset
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._note(batch)

    def _note(self, batch: SimulatedBatch) -> None:
        if batch.header is not None:
            self.producers.replay(batch.header, None)
        elif batch.sequence >= 0:
            self.sequences.setdefault(batch.producer, {})[batch.sequence] = batch.base_offset

    def _rebuild_producers(self) -> None:
        self.sequences = {}
        self.producers = ProducerState()
        for batch in self.batches:
            self._note(batch)


def values_of(batch: memoryview) -> tuple[int, ...]:
    """Return the numbers with which a real producer's records begin."""
    return tuple(int(bytes(record.value or b"").partition(b" ")[0]) for record in iterate_records(batch))


def _nothing() -> None:
    """Precedes the process that wants to know."""
