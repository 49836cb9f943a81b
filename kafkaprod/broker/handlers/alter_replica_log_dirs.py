"""AlterReplicaLogDirs (34): move partitions to other log directories of this broker, and say where new ones go.

LOG_DIR_NOT_FOUND for a directory that the broker has not, KAFKA_STORAGE_ERROR for one that is offline, and for any move
while one is. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one of which this broker has no replica
REPLICA_NOT_AVAILABLE; its directory is remembered.
"""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.topics import is_legal_name
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kafkaprod.structs import TopicPartition

API = ApiKey.ALTER_REPLICA_LOG_DIRS
LANE = Lane.CONTROL
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[AlterReplicaLogDirsRequest]) -> Outcome:
    """Begin the moves, partition after partition."""
    return run_in_control_steps(broker, _begin_all(broker, request.body), partial(refuse, request))


def _begin_all(broker: Broker, body: AlterReplicaLogDirsRequest) -> PausingSteps[AlterReplicaLogDirsResponse]:
    results = []
    for directory in body.dirs:
        for topic in directory.topics:
            partitions = []
            for index in topic.partitions:
                error = _begin(broker, directory.path, TopicPartition(topic.name, index))
                partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
                yield Pause.SHORT
            results.append(AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions))
    return AlterReplicaLogDirsResponse(results=results)


def _begin(broker: Broker, path: str, topic_partition: TopicPartition) -> int:
    partition = broker.topics.partition(*topic_partition)
    try:
        if partition is None:
            if not is_legal_name(topic_partition.topic):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # and there will never be such a topic
            error = broker.log_dirs.wish(topic_partition, path)
            return error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not partition.has_log and not partition.is_offline:
            error = broker.log_dirs.wish(topic_partition, path)
            return error or ErrorCode.REPLICA_NOT_AVAILABLE
        return broker.log_dirs.move(partition.log, path)
    except BrokerError as error:
        return error.code


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
