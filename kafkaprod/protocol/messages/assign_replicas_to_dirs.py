"""AssignReplicasToDirs (73): a broker says in which of its log directories replicas are.

Source: KIP-858.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class AssignedPartition(Struct):
    """A partition."""

    partition_index: int = field(INT32)


class AssignedTopic(Struct):
    """Partitions of one topic."""

    topic_id: uuid.UUID | None = field(UUID)
    partitions: list[AssignedPartition] = field(array(AssignedPartition))


class AssignedDirectory(Struct):
    """A log directory and the replicas in it."""

    id: uuid.UUID | None = field(UUID)
    topics: list[AssignedTopic] = field(array(AssignedTopic))


class AssignReplicasToDirsRequest(Request, api=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=(0, 0), flexible_from=0):
    """Where replicas are."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    directories: list[AssignedDirectory] = field(array(AssignedDirectory))


class AssignmentResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TopicAssignmentResults(Struct):
    """The outcome for one topic."""

    topic_id: uuid.UUID | None = field(UUID)
    partitions: list[AssignmentResult] = field(array(AssignmentResult))


class DirectoryAssignmentResults(Struct):
    """The outcome for one log directory."""

    id: uuid.UUID | None = field(UUID)
    topics: list[TopicAssignmentResults] = field(array(TopicAssignmentResults))


class AssignReplicasToDirsResponse(Response, api=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=(0, 0), flexible_from=0):
    """The outcome for each partition, or one error for all."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    directories: list[DirectoryAssignmentResults] = field(array(DirectoryAssignmentResults))
