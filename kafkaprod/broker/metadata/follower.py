"""A broker's copy of the metadata log, which the controller pushes in slices.

A slice names the offset and the epoch before its first record. A broker that does not hold exactly that refuses, and
says where its log ends, so that the controller steps back. What an older controller epoch or another incarnation of the
broker was sent is refused, too. Nothing is applied before the log holds the registration of this process itself: what
was decided before that is of a former process, which may have led with records that this one lost.
Pure state: one owner, no lock. Source of the last rule: Kafka's BrokerServer, which follows the metadata once the
controller has seen that it is caught up.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataLog
from kafkaprod.protocol.error_codes import ErrorCode


class MetadataSlice(NamedTuple):
    """What the controller sends: batches, and the place behind which they belong."""

    controller_epoch: int
    broker_epoch: int
    previous_offset: int
    previous_epoch: int
    commit_offset: int
    batches: tuple[MetadataBatch, ...]


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
        for batch in sent.batches:
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
        holds = self.log.end_offset >= sent.previous_offset
        if not holds or self.log.epoch_before(sent.previous_offset) != sent.previous_epoch:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _apply(self, commit_offset: int) -> frozenset[PartitionKey]:
        changed: set[PartitionKey] = set()
        for batch in self.log.read(self.image.end_offset):
            if batch.end_offset > commit_offset:
                break
            for delta, record in enumerate(batch.records):
                changed |= self.image.apply(batch.base_offset + delta, record)
        return frozenset(changed)
