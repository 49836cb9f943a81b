"""Topics: created, widened, deleted, and their options. A request is one topic, or one resource, and one batch
of records. Handlers are pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafkaprod.broker.controller.context import TOPIC_RESOURCE, ChangeRefusedError, ControllerContext
from kafkaprod.broker.controller.events import AdoptTopic, Decision
from kafkaprod.broker.controller.log_directories import DirectoryChoice
from kafkaprod.broker.controller.placement import place
from kafkaprod.broker.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.schema import Struct

_DELETE_OPTION: Final = 1  # AlterConfigOp.OpType.DELETE; the others are left to brokers, which know the old value


def _outcome(change: Callable[[], list[Struct]]) -> tuple[list[Struct], dict[str, Any]]:
    """Return the records of a change, or none where it raises its refusal; and what the result says of this."""
    try:
        return change(), {}
    except ChangeRefusedError as refusal:
        return [], {"error_code": refusal.error, "error_message": str(refusal)}


def create(context: ControllerContext, request: CreateTopicsRequest, now_ms: int) -> Decision:
    """Create the topic of a request.

    Refused: TOPIC_ALREADY_EXISTS; INVALID_PARTITIONS, bad count; INVALID_REPLICATION_FACTOR, too few brokers or none of
    them active; INVALID_REPLICA_ASSIGNMENT.
    """
    (wanted,) = request.topics
    records, failure = _outcome(lambda: _creation(context, wanted, validate_only=request.validate_only))
    topic_id = next((record.topic_id for record in records if isinstance(record, TopicRecord)), None)
    result = CreatableTopicResult(name=wanted.name, topic_id=topic_id, **failure)
    return Decision(records, CreateTopicsResponse(topics=[result]))


def adopt(context: ControllerContext, event: AdoptTopic, now_ms: int) -> Decision:
    """Note a topic that has its id and its logs already."""
    replicas = _given(context, event.assignment)
    return Decision(_topic(context, event.name, event.topic_id, event.configs, replicas), None)


def create_partitions(context: ControllerContext, request: CreatePartitionsRequest, now_ms: int) -> Decision:
    """Raise the number of partitions of a request's topic.

    Refused: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS, not more than now; INVALID_REPLICATION_FACTOR, no active
    broker; INVALID_REPLICA_ASSIGNMENT.
    """
    (wanted,) = request.topics
    records, failure = _outcome(lambda: _growth(context, wanted))
    results = [CreatePartitionsTopicResult(name=wanted.name, **failure)]
    return Decision([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def delete(context: ControllerContext, request: DeleteTopicsRequest, now_ms: int) -> Decision:
    """Delete the topic of a request with its options. Refused: UNKNOWN_TOPIC_OR_PARTITION."""
    (wanted,) = request.topics
    name = wanted.name or ""
    topic_id = context.image.topic_ids.get(name)
    records, failure = _outcome(lambda: _deletion(context, name))
    result = DeletableTopicResult(name=wanted.name, topic_id=topic_id, **failure)
    return Decision(records, DeleteTopicsResponse(responses=[result]))


def alter_configs(context: ControllerContext, request: IncrementalAlterConfigsRequest, now_ms: int) -> Decision:
    """Set or delete options of a request's resource."""
    (resource,) = request.resources
    kind, name = resource.resource_type, resource.resource_name
    records: list[Struct] = [
        ConfigRecord(
            resource_type=kind,
            resource_name=name,
            name=config.name,
            value=None if config.config_operation == _DELETE_OPTION else config.value,
        )
        for config in resource.configs
    ]
    result = AlterConfigsResourceResponse(resource_type=kind, resource_name=name)
    return Decision(records, IncrementalAlterConfigsResponse(responses=[result]))


def _creation(context: ControllerContext, wanted: CreatableTopic, *, validate_only: bool) -> list[Struct]:
    if wanted.name in context.image.topic_ids:
        raise ChangeRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
    if wanted.assignments:
        ordered = sorted(wanted.assignments, key=lambda each: each.partition_index)
        replicas = _given(context, [each.broker_ids for each in ordered])
    else:
        replicas = _placed(context, wanted.num_partitions, wanted.replication_factor)
    if validate_only:
        return []
    topic_id = uuid.UUID(int=context.generator.getrandbits(128), version=4)
    configs = {config.name: config.value for config in wanted.configs if config.value is not None}
    return _topic(context, wanted.name, topic_id, configs, replicas)


def _topic(
    context: ControllerContext,
    name: str,
    topic_id: uuid.UUID,
    configs: Mapping[str, str],
    replicas: Sequence[Sequence[int]],
) -> list[Struct]:
    records: list[Struct] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option, value=value)
        for option, value in configs.items()
    ]
    return records + _partitions(context, topic_id, 0, replicas)


def _growth(context: ControllerContext, wanted: CreatePartitionsTopic) -> list[Struct]:
    topic_id = _known_id(context, wanted.name)
    partitions = context.image.partitions_of_topic(topic_id)
    added = wanted.count - len(partitions)
    if added <= 0:
        raise ChangeRefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{wanted.name}' has {len(partitions)} partitions, {wanted.count} is not more.",
        )
    factor = len(partitions[0].replicas)
    if wanted.assignments is None:
        replicas = _placed(context, added, factor)
    elif len(wanted.assignments) != added:
        raise ChangeRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Topic '{wanted.name}' would get {added} more partitions; the request gives replicas of"
            f" {len(wanted.assignments)}.",
        )
    else:
        replicas = _given(context, [each.broker_ids for each in wanted.assignments], factor)
    return _partitions(context, topic_id, len(partitions), replicas)


def _deletion(context: ControllerContext, name: str) -> list[Struct]:
    topic_id = _known_id(context, name)
    options = context.image.configs.get((TOPIC_RESOURCE, name), {})
    records: list[Struct] = [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option) for option in options
    ]
    return [*records, RemoveTopicRecord(topic_id=topic_id)]


def _known_id(context: ControllerContext, name: str) -> uuid.UUID:
    topic_id = context.image.topic_ids.get(name)
    if topic_id is None:
        raise ChangeRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return topic_id


def _placed(context: ControllerContext, partition_count: int, factor: int) -> Sequence[Sequence[int]]:
    """Return replicas that the controller chooses for each new partition."""
    brokers = [broker for broker in context.image.brokers.values() if not broker.in_controlled_shutdown]
    if partition_count < 1:
        raise ChangeRefusedError(ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions are too few.")
    if not 1 <= factor <= len(brokers) or not any(broker.is_active for broker in brokers):
        raise ChangeRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} needs as many brokers, one of them active; {len(brokers)} are registered.",
        )
    return place(brokers, partition_count, factor, context.generator)


def _given(
    context: ControllerContext, assignment: Sequence[Sequence[int]], factor: int | None = None
) -> Sequence[Sequence[int]]:
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
            raise ChangeRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return assignment


def _partitions(
    context: ControllerContext, topic_id: uuid.UUID, first: int, assignment: Sequence[Sequence[int]]
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
