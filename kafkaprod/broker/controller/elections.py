"""Who becomes leader of a partition, and what that changes.

1. The ISR loses the brokers that leave. If none would be left, it stays as it is, and the partition has no leader.
2. The leader stays if it is still in the ISR and active.
3. Else the first replica that is active and in the ISR leads.
4. Else, if unclean elections are allowed, the first active replica leads alone, in recovery.
5. Else there is no leader.

The leader epoch rises when the leader changes, not when the ISR shrinks (KAFKA-15021). Pure functions.
Source: Kafka, PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkaprod.broker.metadata.image import PartitionImage, RecoveryState
from kafkaprod.broker.metadata.records import LEADER_UNCHANGED, NO_LEADER, PartitionChangeRecord

IsActive = Callable[[int], bool]


def elect(
    partition: PartitionImage, is_active: IsActive, *, leaving: int | None = None, may_be_unclean: bool = False
) -> PartitionChangeRecord | None:
    """Return the change that an election makes, None if it makes none.

    Args:
        partition: As it is.
        is_active: Whether a broker may lead; the one that leaves may not.
        leaving: A broker that leaves the ISR.
        may_be_unclean: Whether a replica outside of the ISR may lead if no other can.
    """
    isr = tuple(member for member in partition.isr if member != leaving) or partition.isr

    def can_lead(broker_id: int) -> bool:
        return broker_id != leaving and is_active(broker_id)

    leader = _clean_leader(partition, isr, can_lead)
    recovery = partition.recovery_state
    if leader == NO_LEADER and may_be_unclean:
        leader = next((replica for replica in partition.replicas if can_lead(replica)), NO_LEADER)
        if leader != NO_LEADER:
            isr, recovery = (leader,), RecoveryState.RECOVERING
    return change(partition, isr=isr, leader=leader, recovery=recovery)


def elect_preferred(partition: PartitionImage, is_active: IsActive) -> PartitionChangeRecord | None:
    """Return the change that makes the first replica leader, None if it cannot or does already."""
    return move_leader(partition, partition.replicas[0], is_active)


def move_leader(partition: PartitionImage, to: int, is_active: IsActive) -> PartitionChangeRecord | None:
    """Return the change that makes a member of the ISR leader, None if it cannot lead or does already."""
    if to not in partition.isr or not is_active(to):
        return None
    return change(partition, leader=to)


def change(
    partition: PartitionImage,
    *,
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    recovery: RecoveryState | None = None,
) -> PartitionChangeRecord | None:
    """Return the record of what differs from the partition as it is, None if nothing does."""
    isr = partition.isr if isr is None else isr
    leader = partition.leader if leader is None else leader
    recovery = partition.recovery_state if recovery is None else recovery
    if (isr, leader, recovery) == (partition.isr, partition.leader, partition.recovery_state):
        return None
    return PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        isr=None if isr == partition.isr else list(isr),
        leader=LEADER_UNCHANGED if leader == partition.leader else leader,
        leader_recovery_state=-1 if recovery == partition.recovery_state else recovery,
    )


def _clean_leader(partition: PartitionImage, isr: tuple[int, ...], can_lead: IsActive) -> int:
    if partition.leader in isr and can_lead(partition.leader):
        return partition.leader
    return next((replica for replica in partition.replicas if replica in isr and can_lead(replica)), NO_LEADER)
