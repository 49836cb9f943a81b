"""AlterReplicaLogDirs (34): move replicas to another log directory of their broker.

    2  flexible

Source: KIP-113.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AlterReplicaLogDir(Struct):
    """A log directory and the partitions to move there."""

    path: str = field(STRING)
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Request, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible_from=2):
    """Moves."""

    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AlterReplicaLogDirTopicResult(Struct):
    """The outcome for one topic."""

    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(array(AlterReplicaLogDirPartitionResult))


class AlterReplicaLogDirsResponse(Response, api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible_from=2):
    """The outcome for each partition."""

    throttle_time_ms: int = field(INT32)
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult))
