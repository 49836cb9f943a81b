"""A replica's log as a list, with a mark up to which it is on disk."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaprod.broker.replication.replica_log import ReplicaBatch
from kafkaprod.broker.storage.recovery.leader_epochs import EpochStart, LeaderEpochs


@dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """A batch of one record: a value, from a producer with a sequence (-1: not idempotent)."""

    base_offset: int
    leader_epoch: int
    producer: int
    sequence: int
    value: int

    @property
    def end_offset(self) -> int:
        """One past the record."""
        return self.base_offset + 1


class SimulatedLog:
    """Implements `ReplicaLog`. What lies behind `synced_offset` is lost in a power cut.

    Attributes:
        sequences: The last sequence of each idempotent producer, and its offset.
    """

    def __init__(self) -> None:
        self.batches: list[SimulatedBatch] = []
        self.log_start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.saved_watermark = 0
        self.synced_offset = 0
        self.epochs = LeaderEpochs()
        self.sequences: dict[int, dict[int, int]] = {}

    def begin_leader_epoch(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.end_offset)

    def append_as_leader(self, epoch: int, producer: int, sequence: int, value: int) -> int:
        """Append one record; return the end offset behind it."""
        self._append(SimulatedBatch(self.end_offset, epoch, producer, sequence, value))
        return self.end_offset

    def append_replicated(self, batch: ReplicaBatch) -> None:
        assert isinstance(batch, SimulatedBatch)
        assert batch.base_offset == self.end_offset, f"batch at {batch.base_offset}, log ends at {self.end_offset}"
        self._append(batch)

    def read_batches(self, offset: int, max_batches: int) -> tuple[SimulatedBatch, ...]:
        first = offset - self.log_start_offset
        return tuple(self.batches[first : first + max_batches])

    def truncate_to(self, end_offset: int) -> None:
        assert self.log_start_offset <= end_offset <= self.end_offset
        del self.batches[end_offset - self.log_start_offset :]
        self.end_offset = end_offset
        self.epochs.truncate_from_end(end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self._rebuild_sequences()

    def restart_at(self, offset: int) -> None:
        self.batches = []
        self.log_start_offset = self.end_offset = self.synced_offset = self.high_watermark = offset
        self.epochs = LeaderEpochs()
        self.sequences = {}

    def raise_log_start(self, offset: int) -> None:
        del self.batches[: offset - self.log_start_offset]
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)

    def value_at(self, offset: int) -> int | None:
        """Return the value at an offset, None outside of the log."""
        place = offset - self.log_start_offset
        return self.batches[place].value if 0 <= place < len(self.batches) else None

    def restart_process(self, *, power_was_cut: bool) -> None:
        """Become what a new process finds on disk."""
        if power_was_cut:
            self.truncate_to(max(self.synced_offset, self.log_start_offset))
        self.high_watermark = min(max(self.saved_watermark, self.log_start_offset), self.end_offset)
        self.epochs = LeaderEpochs([EpochStart(*entry) for entry in self.epochs.entries])

    def _append(self, batch: SimulatedBatch) -> None:
        self.batches.append(batch)
        self.end_offset += 1
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        if batch.sequence >= 0:
            self.sequences.setdefault(batch.producer, {})[batch.sequence] = batch.base_offset

    def _rebuild_sequences(self) -> None:
        self.sequences = {}
        for batch in self.batches:
            if batch.sequence >= 0:
                self.sequences.setdefault(batch.producer, {})[batch.sequence] = batch.base_offset
