"""Partitions move to other brokers: replicas join, catch up, come into sync; then the old ones leave.

While a reassignment is in progress, `replicas` holds the new replicas in their order, then those that will leave. It is
complete once the ISR has every replica that joins, and one that stays; then the leader is one of the new replicas, and
the leader epoch grows, so that fetches of those that left are refused. Handlers are pure. Source: KIP-455.
"""

from __future__ import annotations

from kafkaprod.broker.controller.context import ControllerContext
from kafkaprod.broker.controller.elections import IsActive
from kafkaprod.broker.controller.events import Decision, Reassign, TopicAnswer
from kafkaprod.broker.controller.log_directories import DirectoryChoice
from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.broker.metadata.records import LEADER_UNCHANGED, NO_LEADER, PartitionChangeRecord
from kafkaprod.protocol.error_codes import ErrorCode


def reassign(context: ControllerContext, event: Reassign, now_ms: int) -> Decision:
    """Begin, replace or cancel a reassignment; answer with an error and a message.

    Refused: UNKNOWN_TOPIC_OR_PARTITION, no such partition; INVALID_REPLICA_ASSIGNMENT, wrong replicas, or a cancel that
    leaves none in sync; NO_REASSIGNMENT_IN_PROGRESS, nothing to cancel.
    """
    partition = context.image.partitions.get(event.key)
    if partition is None:
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    if event.replicas is None:
        if not (partition.adding or partition.removing):
            return _refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        return _change(context, partition, before, (), ())
    wanted = event.replicas
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(context.image.brokers):
        return _refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Replicas {list(wanted)} are not different brokers.")
    adding = tuple(replica for replica in wanted if replica not in before)
    removing = tuple(replica for replica in before if replica not in wanted)
    return _change(context, partition, (*wanted, *removing), adding, removing)


def completion(partition: PartitionImage, isr: tuple[int, ...], is_active: IsActive) -> PartitionChangeRecord | None:
    """Return the change that completes a partition's reassignment, None while it cannot be completed.

    Args:
        partition: As it is.
        isr: The one after the change.
        is_active: Whether a broker may lead.
    """
    if not (partition.adding or partition.removing):
        return None
    staying = tuple(member for member in isr if member not in partition.removing)
    if not set(partition.adding) <= set(isr) or not staying:
        return None
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.removing)
    return _record(partition, replicas, staying, (), (), is_active)


def _change(
    context: ControllerContext,
    partition: PartitionImage,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> Decision:
    isr = tuple(member for member in partition.isr if member in replicas)
    if not isr:
        return _refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"None of the replicas {list(replicas)} is in sync.")
    if set(adding) <= set(isr) and any(member not in removing for member in isr):  # complete at once
        replicas = tuple(replica for replica in replicas if replica not in removing)
        isr = tuple(member for member in isr if member not in removing)
        adding = removing = ()
    record = _record(partition, replicas, isr, adding, removing, context.image.may_lead(partition))
    if record is not None and record.replicas is not None:
        record.directories = DirectoryChoice(context.image).of(replicas, partition) or None
    return Decision([] if record is None else [record], TopicAnswer(ErrorCode.NONE))


def _record(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    is_active: IsActive,
) -> PartitionChangeRecord | None:
    """Return what differs, None if nothing does. Whoever leaves raises the leader epoch."""
    after = (replicas, isr, adding, removing)
    if after == (partition.replicas, partition.isr, partition.adding, partition.removing):
        return None
    leader = partition.leader
    if leader not in isr or leader not in replicas:
        leader = next((replica for replica in replicas if replica in isr and is_active(replica)), NO_LEADER)
    has_left = not set(partition.replicas) <= set(replicas)
    return PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        isr=None if isr == partition.isr else list(isr),
        leader=leader if has_left or leader != partition.leader else LEADER_UNCHANGED,
        replicas=None if replicas == partition.replicas else list(replicas),
        removing_replicas=None if removing == partition.removing else list(removing),
        adding_replicas=None if adding == partition.adding else list(adding),
        directories=None if replicas == partition.replicas else list(partition.directories_for(replicas)) or None,
    )


def _refused(error: ErrorCode, message: str) -> Decision:
    return Decision([], TopicAnswer(error, message))
