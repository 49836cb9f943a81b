"""What replication needs of a partition's log, and the shape of what travels between replicas."""

from __future__ import annotations

from typing import Protocol


class EpochTable(Protocol):
    """Which leader epoch began where."""

    def epoch_for(self, offset: int) -> int:
        """The epoch in force at an offset, -1 if unknown."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ended; (-1, -1) if that is unknown."""


class ReplicaBatch(Protocol):
    """A record batch as replicas exchange it."""

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""

    @property
    def end_offset(self) -> int:
        """One past the offset of its last record."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that wrote it."""


class ReplicaLog(Protocol):
    """The log of one replica."""

    @property
    def epochs(self) -> EpochTable:
        """Which leader epoch began where."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> int:
        """One past the last record."""

    @property
    def high_watermark(self) -> int:
        """One past the last record that all in-sync replicas have, as far as this one knows."""

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Set it; between log start and end."""

    def begin_leader_epoch(self, epoch: int) -> None:
        """Note that records from the end on belong to an epoch, also if no record follows (KAFKA-7415)."""

    def append_replicated(self, batch: ReplicaBatch) -> None:
        """Append a leader's batch as it is; it starts at the end."""

    def read_batches(self, offset: int, max_batches: int) -> tuple[ReplicaBatch, ...]:
        """Return batches from the one that holds `offset` on."""

    def truncate_to(self, end_offset: int) -> None:
        """Drop all records from an offset on, their epochs and producer state first."""

    def restart_at(self, offset: int) -> None:
        """Become empty, the next record to come having this offset."""

    def raise_log_start(self, offset: int) -> None:
        """Drop records below an offset, which is at most the end."""
