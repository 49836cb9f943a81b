"""Topics: created, widened, deleted, and their options. One batch of records for each. Handlers are pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from kafkaprod.broker.controller.context import TOPIC_RESOURCE, ControllerContext
from kafkaprod.broker.controller.events import (
    AlterConfig,
    CreatePartitions,
    CreateTopic,
    Decision,
    DeleteTopic,
    TopicAnswer,
)
from kafkaprod.broker.controller.log_directories import DirectoryChoice
from kafkaprod.broker.controller.placement import place
from kafkaprod.broker.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Struct

_EventT = TypeVar("_EventT")


class _RefusalError(Exception):
    """A change that is refused."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.answer = TopicAnswer(error, message)


_Change = Callable[[ControllerContext, _EventT, int], Decision]


def _answering_refusals(change: _Change[_EventT]) -> _Change[_EventT]:
    """Let a change raise its refusal, which is a decision without records."""

    @wraps(change)
    def decide(context: ControllerContext, event: _EventT, now_ms: int) -> Decision:
        try:
            return change(context, event, now_ms)
        except _RefusalError as refusal:
            return Decision([], refusal.answer)

    return decide


@_answering_refusals
def create(context: ControllerContext, event: CreateTopic, now_ms: int) -> Decision:
    """Create a topic.

    Refused: TOPIC_ALREADY_EXISTS; INVALID_PARTITIONS, bad count; INVALID_REPLICATION_FACTOR, too few brokers or none of
    them active; INVALID_REPLICA_ASSIGNMENT.
    """
    if event.name in context.image.topic_ids:
        raise _RefusalError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{event.name}' already exists.")
    count, factor, assignment = event.partition_count, event.replication_factor, event.assignment
    replicas = _placed(context, count, factor) if assignment is None else _given(context, assignment)
    if event.validate_only:
        return Decision([], TopicAnswer(ErrorCode.NONE))
    topic_id = event.topic_id or uuid.UUID(int=context.generator.getrandbits(128), version=4)
    records: list[Struct] = [TopicRecord(name=event.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=event.name, name=name, value=value)
        for name, value in event.configs.items()
    ]
    records += _partitions(context, topic_id, 0, replicas)
    return Decision(records, TopicAnswer(ErrorCode.NONE, None, topic_id))


@_answering_refusals
def create_partitions(context: ControllerContext, event: CreatePartitions, now_ms: int) -> Decision:
    """Raise a topic's number of partitions.

    Refused: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS, not more than now; INVALID_REPLICATION_FACTOR, no active
    broker; INVALID_REPLICA_ASSIGNMENT.
    """
    topic_id = context.image.topic_ids.get(event.name)
    if topic_id is None:
        raise _RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{event.name}' does not exist.")
    partitions = context.image.partitions_of_topic(topic_id)
    added = event.partition_count - len(partitions)
    if added <= 0:
        raise _RefusalError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{event.name}' has {len(partitions)} partitions, {event.partition_count} is not more.",
        )
    factor = len(partitions[0].replicas)
    if event.assignment is None:
        replicas = _placed(context, added, factor)
    elif len(event.assignment) != added:
        raise _RefusalError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Topic '{event.name}' would get {added} more partitions; the request gives replicas of"
            f" {len(event.assignment)}.",
        )
    else:
        replicas = _given(context, event.assignment, factor)
    if event.validate_only:
        return Decision([], TopicAnswer(ErrorCode.NONE))
    records = _partitions(context, topic_id, len(partitions), replicas)
    return Decision(records, TopicAnswer(ErrorCode.NONE, None, topic_id))


@_answering_refusals
def delete(context: ControllerContext, event: DeleteTopic, now_ms: int) -> Decision:
    """Delete a topic with its options. Refused: UNKNOWN_TOPIC_OR_PARTITION."""
    topic_id = context.image.topic_ids.get(event.name)
    if topic_id is None:
        raise _RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{event.name}' does not exist.")
    options = context.image.configs.get((TOPIC_RESOURCE, event.name), {})
    records: list[Struct] = [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=event.name, name=name) for name in options
    ]
    return Decision([*records, RemoveTopicRecord(topic_id=topic_id)], TopicAnswer(ErrorCode.NONE, None, topic_id))


def alter_config(context: ControllerContext, event: AlterConfig, now_ms: int) -> Decision:
    """Set or delete an option of a resource."""
    record = ConfigRecord(
        resource_type=event.resource_type, resource_name=event.resource_name, name=event.name, value=event.value
    )
    return Decision([record], TopicAnswer(ErrorCode.NONE))


def _placed(context: ControllerContext, partition_count: int, factor: int) -> Sequence[tuple[int, ...]]:
    """Return replicas that the controller chooses for each new partition."""
    brokers = [broker for broker in context.image.brokers.values() if not broker.in_controlled_shutdown]
    if partition_count < 1:
        raise _RefusalError(ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions are too few.")
    if not 1 <= factor <= len(brokers) or not any(broker.is_active for broker in brokers):
        raise _RefusalError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} needs as many brokers, one of them active; {len(brokers)} are registered.",
        )
    return place(brokers, partition_count, factor, context.generator)


def _given(
    context: ControllerContext, assignment: Sequence[tuple[int, ...]], factor: int | None = None
) -> Sequence[tuple[int, ...]]:
    """Return the replicas that a request gives.

    Args:
        context: Knows the brokers.
        assignment: The replicas of each new partition.
        factor: How many each must have; None takes the number of the first.
    """
    wanted = len(assignment[0]) if factor is None and assignment else factor
    for members in assignment:
        unknown = [member for member in members if member not in context.image.brokers]
        problem = None
        if not members:
            problem = "A new partition needs one replica at least."
        elif len(set(members)) != len(members):
            problem = f"Replicas {list(members)} name a broker twice."
        elif unknown:
            problem = f"Replicas {list(members)} name brokers that are not registered: {unknown}."
        elif len(members) != wanted:
            problem = f"Replicas {list(members)} are {len(members)}, other partitions of the topic have {wanted}."
        elif not any(context.image.is_active(member) for member in members):
            problem = f"Replicas {list(members)} are all fenced or shutting down."
        if problem is not None:
            raise _RefusalError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return assignment


def _partitions(
    context: ControllerContext, topic_id: uuid.UUID, first: int, assignment: Sequence[tuple[int, ...]]
) -> list[Struct]:
    """Return new partitions: in sync are the active replicas of each, and the first of them leads."""
    records: list[Struct] = []
    choice = DirectoryChoice(context.image)
    for index, replicas in enumerate(assignment, first):
        isr = [member for member in replicas if context.image.is_active(member)]
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr or [replicas[0]],
            leader=isr[0] if isr else -1,
            leader_epoch=0,
            partition_epoch=0,
            directories=choice.of(replicas),
        )
        records.append(record)
    return records
