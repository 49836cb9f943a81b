"""Writes transaction markers into the partitions of this broker.

Both the transaction coordinator and WriteTxnMarkers from outside come here. A marker in the log of committed offsets
also moves or drops the offsets that waited for it. The control thread owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from kafkaprod.broker.coordinator.offset_log import OFFSETS_PARTITION, OffsetLog
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

FINAL_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""A partition that took no marker for one of these reasons will not take it later either."""

FindLog = Callable[[TopicPartition], PartitionLog | None]


class Marker(NamedTuple):
    """What a marker says, and of whom.

    Attributes:
        transaction_version: 2 if the epoch is above that of the transaction's records (KIP-890, KIP-1228).
    """

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerSink(Protocol):
    """Brings markers into the logs of partitions; the transaction coordinator's way there."""

    def send(
        self,
        marker: Marker,
        partitions: Collection[TopicPartition],
        on_done: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        """Write a marker into each partition; `on_done` gets the error codes, on the control thread, perhaps now."""


class MarkerWriter:
    """See the module docstring."""

    def __init__(self, find_log: FindLog, offsets: OffsetLog) -> None:
        self._find_log = find_log
        self._offsets = offsets

    def send(
        self,
        marker: Marker,
        partitions: Collection[TopicPartition],
        on_done: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        """See `MarkerSink`: a broker alone has all partitions."""
        on_done(self.write(marker, partitions))

    def write(self, marker: Marker, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Write a marker into each partition and commit it there; return the error code of each, NONE for success.

        A partition that does not exist has UNKNOWN_TOPIC_OR_PARTITION, one whose marker was refused
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED, one whose disk failed KAFKA_STORAGE_ERROR.
        """
        errors: dict[TopicPartition, int] = {}
        written: list[tuple[TopicPartition, PartitionLog, int]] = []
        for partition in partitions:
            log = self._find_log(partition)
            if log is None:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                written.append((partition, log, self._append(log, marker) + 1))
            except BrokerError as error:
                errors[partition] = error.code
                logger.critical("marker of producer %d in %s failed: %s", marker.producer_id, partition, error)
        for partition, log, end_offset in written:
            errors[partition] = self._commit(marker, partition, log, end_offset)
        return errors

    def _append(self, log: PartitionLog, marker: Marker) -> int:
        outcome = EndTransactionMarker(marker.is_commit, marker.coordinator_epoch)
        leader_epoch = max(log.latest_epoch, 0)
        result = log.append_marker(marker.producer_id, marker.epoch, outcome, leader_epoch, marker.transaction_version)
        return result.last_offset

    def _commit(self, marker: Marker, partition: TopicPartition, log: PartitionLog, end_offset: int) -> int:
        try:
            log.commit(end_offset)
        except BrokerError as error:
            logger.critical("marker of producer %d in %s is not durable: %s", marker.producer_id, partition, error)
            return error.code
        if partition == OFFSETS_PARTITION:
            self._offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit)
        return ErrorCode.NONE
