"""A broker's copy of the metadata log, which the controller pushes in slices.

A slice names the offset and the epoch before its first record. A broker that does not hold exactly that refuses, and
says where its log ends, so that the controller steps back. What an older controller epoch or another incarnation of the
broker was sent is refused, too. Nothing is applied before the log holds the registration of this process itself: what
was decided before that is of a former process, which may have led with records that this one lost.
A broker that lacks what the controller's log has no more is sent a snapshot, in parts, and the log from its end on.
Pure state: one owner, no lock. Source of the last rule: Kafka's BrokerServer, which follows the metadata once the
controller has seen that it is caught up.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.metadata.image_records import image_of
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataLog
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Struct


class SnapshotPart(NamedTuple):
    """Which part of a snapshot a slice carries, in place of a part of the log.

    Attributes:
        end_offset: One past the last record of the log that the snapshot holds.
        epoch: The epoch of that record.
        first: The number of the part's first record, from 0.
        total: How many records the snapshot has.
    """

    end_offset: int
    epoch: int
    first: int
    total: int


class MetadataSlice(NamedTuple):
    """What the controller sends: batches, and the place behind which they belong; or one, a part of a snapshot."""

    controller_epoch: int
    broker_epoch: int
    previous_offset: int
    previous_epoch: int
    commit_offset: int
    batches: tuple[MetadataBatch, ...]
    part: SnapshotPart | None = None


class SliceAnswer(NamedTuple):
    """Where the broker's log ends after a slice, or where it ended when the slice was refused."""

    error: ErrorCode
    end_offset: int
    end_epoch: int


class MetadataFollower:
    """The log and image of one broker process; a new process starts at offset 0.

    Attributes:
        controller_epoch: The newest epoch seen; older controllers are refused.
    """

    def __init__(self) -> None:
        self.log = MetadataLog()
        self.image = ClusterImage()
        self.controller_epoch = -1
        self._commit_offset = 0
        self._has_caught_up = False
        self._parts: list[Struct] = []  # of a snapshot that is not whole yet
        self._parts_of: tuple[int, SnapshotPart] | None = None
        self._base: ClusterImage | None = None  # of a snapshot that is not applied yet

    def receive(self, sent: MetadataSlice, broker_epoch: int) -> tuple[SliceAnswer, frozenset[PartitionKey]]:
        """Take a slice over; return the answer, and the partitions that its committed records changed.

        Args:
            sent: What came.
            broker_epoch: The epoch of this process's registration, -1 before it is known: then any is taken, and none
                applied.
        """
        error = self._refusal(sent, broker_epoch)
        if error != ErrorCode.NONE:
            return SliceAnswer(error, self.log.end_offset, self.log.last_epoch), frozenset()
        self.controller_epoch = sent.controller_epoch
        if sent.part is not None:
            error = self._take_part(sent, sent.part)
            self._commit_offset = max(self._commit_offset, sent.commit_offset)
            return SliceAnswer(error, self.log.end_offset, self.log.last_epoch), self.catch_up(broker_epoch)
        for batch in sent.batches:
            if batch.end_offset <= self.log.start_offset:
                continue  # the snapshot has it
            if batch.base_offset < self.log.end_offset:
                if self.log.epoch_before(batch.base_offset + 1) == batch.epoch:
                    continue  # a repetition of what is here
                self.log.truncate(batch.base_offset)
            self.log.append(batch)
        self._commit_offset = sent.commit_offset
        return SliceAnswer(ErrorCode.NONE, self.log.end_offset, self.log.last_epoch), self.catch_up(broker_epoch)

    def catch_up(self, broker_epoch: int) -> frozenset[PartitionKey]:
        """Apply what is committed, from the registration on; return the partitions that changed.

        Args:
            broker_epoch: As of `receive`: the offset of the registration, -1 before it is known. Slices of it may come
                before that, so this is called again then.
        """
        if not self._has_caught_up:
            self._has_caught_up = 0 <= broker_epoch < min(self._commit_offset, self.log.end_offset)
        return self._apply(self._commit_offset) if self._has_caught_up else frozenset()

    def _refusal(self, sent: MetadataSlice, broker_epoch: int) -> ErrorCode:
        if sent.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch >= 0 and sent.broker_epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if sent.part is not None or sent.previous_offset < self.log.start_offset:
            return ErrorCode.NONE
        holds = self.log.end_offset >= sent.previous_offset
        if not holds or self.log.epoch_before(sent.previous_offset) != sent.previous_epoch:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _take_part(self, sent: MetadataSlice, part: SnapshotPart) -> ErrorCode:
        """Keep a part of a snapshot; a whole one takes the place of the log, if it has more."""
        if part.end_offset <= self.log.end_offset:
            return ErrorCode.NONE
        snapshot = (sent.controller_epoch, part._replace(first=0))
        if self._parts_of != snapshot:
            self._parts, self._parts_of = [], snapshot
        if part.first > len(self._parts):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if part.first == len(self._parts):
            self._parts += [record for batch in sent.batches for record in batch.records]
        if len(self._parts) == part.total:
            self._base = image_of(self._parts, part.end_offset)
            self.log = MetadataLog((), part.end_offset, part.epoch)
            self._parts, self._parts_of = [], None
        return ErrorCode.NONE

    def _apply(self, commit_offset: int) -> frozenset[PartitionKey]:
        changed: set[PartitionKey] = set()
        if self._base is not None:
            changed = {*self.image.partitions, *self._base.partitions}
            self.image.become(self._base)
            self._base = None
        for batch in self.log.read(self.image.end_offset):
            if batch.end_offset > commit_offset:
                break
            for delta, record in enumerate(batch.records):
                changed |= self.image.apply(batch.base_offset + delta, record)
        return frozenset(changed)
