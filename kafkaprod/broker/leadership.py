"""Whether a client's idea of a partition's leader epoch is right (KIP-320)."""

from __future__ import annotations

from kafkaprod.broker.topics import Partition
from kafkaprod.protocol.error_codes import ErrorCode

UNKNOWN_EPOCH = -1


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """74 if the client knows an older leader, 75 if it knows a newer one than we do."""
    if current_leader_epoch in (UNKNOWN_EPOCH, partition.leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
