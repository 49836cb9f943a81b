"""DescribeLogDirs (35): the log directories, the size of each partition, and how far those are that move."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.controller.disk_log import METADATA_PARTITION
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.replica_move import ReplicaMove
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkaprod.structs import TopicPartition

API = ApiKey.DESCRIBE_LOG_DIRS
LANE = Lane.CONTROL
MAX_VERSION = 5


def handle(broker: Broker, request: ClientRequest[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Describe the directories; partitions that a directory does not have are left out."""
    wanted: Mapping[str, Container[int]] | None = None
    if request.body.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in request.body.topics}
    copies: dict[str, list[tuple[TopicPartition, DescribeLogDirsPartition]]] = {}
    for move in broker.log_dirs.moves:
        copies.setdefault(move.target.path, []).append((move.log.topic_partition, _copy(move)))
    results = []
    for directory in broker.log_dirs.online:
        logs = directory.partitions.items()
        found = [(key, _replica(key, log)) for key, log in logs if key != METADATA_PARTITION]
        results.append(_describe(directory.path, [*found, *copies.get(directory.path, ())], wanted))
    results += [
        DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        for path in broker.log_dirs.offline_paths
    ]
    return DescribeLogDirsResponse(results=results)


def _describe(
    path: str,
    found: Sequence[tuple[TopicPartition, DescribeLogDirsPartition]],
    wanted: Mapping[str, Container[int]] | None,
) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), described in sorted(found, key=lambda item: item[0]):
        if wanted is None or index in wanted.get(name, ()):
            topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[])).partitions.append(described)
    result = DescribeLogDirsResult(log_dir=path, topics=list(topics.values()))
    try:
        volume = os.statvfs(path)
        result.total_bytes = volume.f_blocks * volume.f_frsize
        result.usable_bytes = volume.f_bavail * volume.f_frsize
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


def _replica(topic_partition: TopicPartition, log: PartitionLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
    )


def _copy(move: ReplicaMove) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=move.log.topic_partition.partition,
        partition_size=move.size_bytes,
        offset_lag=max(move.lag, 0),
        is_future_key=True,
    )
