"""A partition's log as replication sees it: `ReplicaLog` over `PartitionLog`.

The event loop owns it, as the replica; the log itself is thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkaprod.broker.replication.replica_log import EpochTable, ReplicaBatch
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.broker.storage.log.watermark import WatermarkRule
from kafkaprod.errors import IllegalStateError
from kafkaprod.storage.batch_header import HEADER_BYTES, parse_header

MAX_READ_BYTES = 1024 * 1024
"""The size limit of one partition in one answer to a follower: followers and clients share the loop."""


class ReadBatches(NamedTuple):
    """Batches of a leader's log, as a range of its file. It stands for all of them."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    source: FileSlice


class FetchedBatch(NamedTuple):
    """A batch that came from the leader; its checksum has not been checked."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    data: memoryview


def fetched_batches(records: memoryview) -> Iterator[FetchedBatch]:
    """Cut the records field of a fetch answer into whole batches; one cut at the end is left out."""
    while len(records) >= HEADER_BYTES:
        header = parse_header(records)
        if header.batch_length <= 0 or len(records) < header.size_bytes:
            return
        yield FetchedBatch(
            header.base_offset,
            header.last_offset + 1,
            header.partition_leader_epoch,
            records[: header.size_bytes],
        )
        records = records[header.size_bytes :]


class _Epochs(NamedTuple):
    log: PartitionLog

    def epoch_for(self, offset: int) -> int:
        return self.log.epoch_for(offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        return self.log.end_offset_for_epoch(epoch)


class PartitionReplicaLog:
    """See the module docstring."""

    def __init__(self, log: PartitionLog, saved_watermark: int) -> None:
        """Take a log over; its high watermark starts at the saved one, and replication moves it from now on."""
        self.log = log
        log.watermark.rule = WatermarkRule.REPLICATED
        log.update_high_watermark(saved_watermark)

    @property
    def epochs(self) -> EpochTable:
        return _Epochs(self.log)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.log.update_high_watermark(offset)

    def begin_leader_epoch(self, epoch: int) -> None:
        self.log.begin_leader_epoch(epoch)

    def append_replicated(self, batch: ReplicaBatch) -> None:
        if not isinstance(batch, FetchedBatch):
            raise IllegalStateError(f"{type(batch).__name__} does not come from a leader")
        self.log.append_replicated(batch.data)

    def read_batches(self, offset: int, max_batches: int) -> tuple[ReadBatches, ...]:
        """Return batches from the one that holds `offset` on, as one range of the file."""
        result = self.log.read(offset, MAX_READ_BYTES, self.log.log_end_offset)
        if result.records is None:
            return ()
        return (ReadBatches(offset, result.end_offset, -1, result.records),)

    def truncate_to(self, end_offset: int) -> None:
        self.log.truncate_to(end_offset)

    def restart_at(self, offset: int) -> None:
        self.log.restart_at(offset)

    def raise_log_start(self, offset: int) -> None:
        self.log.follow_log_start(offset)
