"""Requests that name the log directories of replicas (AssignReplicasToDirs), as events, and back. Pure functions."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkaprod.broker.controller.events import AssignmentAnswer, AssignReplicas
from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.metadata.records import MIGRATING
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignmentResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResults,
    TopicAssignmentResults,
)
from kafkaprod.protocol.schema import Response

if TYPE_CHECKING:
    from kafkaprod.broker.controller.controller import Controller

_ByTopic = Mapping[uuid.UUID, list[int]]


def on_assignment(
    controller: Controller, request: AssignReplicasToDirsRequest, now_ms: int, reply: Callable[[Response], None]
) -> None:
    """Queue the event of a request."""
    event = assignment_event(request)

    def answered(answer: AssignmentAnswer | ErrorCode) -> None:
        outcome = AssignmentAnswer(answer) if isinstance(answer, ErrorCode) else answer
        reply(_response(event.directories, outcome))

    controller.queue.put(event._replace(reply=answered), now_ms)


def assignment_request(event: AssignReplicas) -> AssignReplicasToDirsRequest:
    """Return the request for an event."""
    directories = [
        AssignedDirectory(
            id=directory,
            topics=[
                AssignedTopic(
                    topic_id=topic_id, partitions=[AssignedPartition(partition_index=index) for index in indexes]
                )
                for topic_id, indexes in topics.items()
            ],
        )
        for directory, topics in _by_directory(event.directories).items()
    ]
    return AssignReplicasToDirsRequest(
        broker_id=event.broker_id, broker_epoch=event.broker_epoch, directories=directories
    )


def assignment_event(request: AssignReplicasToDirsRequest) -> AssignReplicas:
    """Return the event that a request stands for.

    Raises:
        CorruptDataError: A topic has no id.
    """
    directories = {
        _key(topic.topic_id, partition.partition_index): directory.id or MIGRATING
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
    return AssignReplicas(request.broker_id, request.broker_epoch, directories)


def assignment_answer(response: AssignReplicasToDirsResponse) -> AssignmentAnswer:
    """Return the answer in a response.

    Raises:
        CorruptDataError: A topic has no id.
    """
    errors = {
        _key(topic.topic_id, partition.partition_index): error_of(partition.error_code)
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
    return AssignmentAnswer(error_of(response.error_code), errors)


def _response(directories: Mapping[PartitionKey, uuid.UUID], answer: AssignmentAnswer) -> AssignReplicasToDirsResponse:
    if answer.error != ErrorCode.NONE:
        return AssignReplicasToDirsResponse(error_code=answer.error)
    results = [
        DirectoryAssignmentResults(
            id=directory,
            topics=[
                TopicAssignmentResults(
                    topic_id=topic_id,
                    partitions=[
                        AssignmentResult(partition_index=index, error_code=answer.errors[topic_id, index])
                        for index in indexes
                    ],
                )
                for topic_id, indexes in topics.items()
            ],
        )
        for directory, topics in _by_directory(directories).items()
    ]
    return AssignReplicasToDirsResponse(directories=results)


def _by_directory(directories: Mapping[PartitionKey, uuid.UUID]) -> Mapping[uuid.UUID, _ByTopic]:
    found: dict[uuid.UUID, dict[uuid.UUID, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic_id, index), directory in directories.items():
        found[directory][topic_id].append(index)
    return found


def _key(topic_id: uuid.UUID | None, index: int) -> PartitionKey:
    if topic_id is None:
        raise CorruptDataError("an assignment to a log directory has no topic id")
    return (topic_id, index)
