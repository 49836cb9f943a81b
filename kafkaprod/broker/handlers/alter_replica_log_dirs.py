"""AlterReplicaLogDirs (34): there is one log directory, where all replicas are already."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

API = ApiKey.ALTER_REPLICA_LOG_DIRS
LANE = Lane.CONTROL
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    """Check each partition: LOG_DIR_NOT_FOUND for another directory, UNKNOWN_TOPIC_OR_PARTITION for an unknown one."""

    def check(path: str, topic: str, index: int) -> ErrorCode:
        if path != broker.log_dir.path:
            return ErrorCode.LOG_DIR_NOT_FOUND
        is_known = broker.topics.partition(topic, index) is not None
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=check(directory.path, topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for directory in request.body.dirs
        for topic in directory.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)


def refuse(request: ClientRequest[AlterReplicaLogDirsRequest], error_code: int) -> AlterReplicaLogDirsResponse:
    """Answer the error for every partition."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code)
                    for index in topic.partitions
                ],
            )
            for directory in request.body.dirs
            for topic in directory.topics
        ]
    )
