"""Partitions move to other brokers: replicas join, catch up, come into sync; then the old ones leave.

While a reassignment is in progress, `replicas` holds the new replicas in their order, then those that will leave. It is
complete once the ISR has every replica that joins, and one that stays; then the leader is one of the new replicas, and
the leader epoch grows, so that fetches of those that left are refused. Handlers are pure. Source: KIP-455.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkaprod.broker.controller.context import ChangeRefusedError, ControllerContext
from kafkaprod.broker.controller.elections import IsActive
from kafkaprod.broker.controller.events import Decision
from kafkaprod.broker.controller.log_directories import DirectoryChoice
from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.broker.metadata.records import LEADER_UNCHANGED, NO_LEADER, PartitionChangeRecord
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkaprod.protocol.schema import Struct


def reassign(context: ControllerContext, request: AlterPartitionReassignmentsRequest, now_ms: int) -> Decision:
    """Begin, replace or cancel reassignments of the topic of a request.

    Refused: UNKNOWN_TOPIC_OR_PARTITION, no such partition; INVALID_REPLICA_ASSIGNMENT, wrong replicas, or a cancel that
    leaves none in sync; NO_REASSIGNMENT_IN_PROGRESS, nothing to cancel.
    """
    (topic,) = request.topics
    topic_id, choice = context.image.topic_ids.get(topic.name), DirectoryChoice(context.image)
    records: list[Struct] = []
    results = []
    for wanted in topic.partitions:
        result = ReassignablePartitionResponse(partition_index=wanted.partition_index)
        results.append(result)
        partition = context.image.partition(topic_id, wanted.partition_index)
        try:
            record = _reassignment(context, partition, wanted.replicas)
        except ChangeRefusedError as refusal:
            result.error_code, result.error_message = refusal.error, str(refusal)
            continue
        if record is not None and record.replicas is not None:
            record.directories = choice.of(record.replicas, partition) or None
        records += [] if record is None else [record]
    answer = ReassignableTopicResponse(name=topic.name, partitions=results)
    return Decision(records, AlterPartitionReassignmentsResponse(responses=[answer]))


def _reassignment(
    context: ControllerContext, partition: PartitionImage | None, wanted: Sequence[int] | None
) -> PartitionChangeRecord | None:
    """Return the change that moves a partition, None if it changes nothing; wanted replicas of None cancel."""
    if partition is None:
        raise ChangeRefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    if wanted is None:
        if not (partition.adding or partition.removing):
            raise ChangeRefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        return _change(context, partition, before, (), ())
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(context.image.brokers):
        raise ChangeRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Replicas {list(wanted)} are not different brokers."
        )
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
) -> PartitionChangeRecord | None:
    isr = tuple(member for member in partition.isr if member in replicas)
    if not isr:
        raise ChangeRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"None of the replicas {list(replicas)} is in sync."
        )
    if set(adding) <= set(isr) and any(member not in removing for member in isr):  # complete at once
        replicas = tuple(replica for replica in replicas if replica not in removing)
        isr = tuple(member for member in isr if member not in removing)
        adding = removing = ()
    return _record(partition, replicas, isr, adding, removing, context.image.may_lead(partition))


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
