"""DescribeLogDirs (35): the data directory and the size of each partition in it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API = ApiKey.DESCRIBE_LOG_DIRS
LANE = Lane.CONTROL
MAX_VERSION = 5


def handle(broker: Broker, request: ClientRequest[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Describe the directory; partitions it does not have are left out."""
    wanted: list[tuple[str, Iterable[int]]]
    if request.body.topics is None:
        wanted = [(topic.name, range(len(topic.partitions))) for topic in broker.topics.all()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.body.topics]
    topics = [
        DescribeLogDirsTopic(name=name, partitions=sizes)
        for name, indexes in wanted
        if (sizes := _sizes(broker, name, indexes))
    ]
    path = broker.log_dir.path
    result = DescribeLogDirsResult(log_dir=path, topics=topics)
    try:
        volume = os.statvfs(path)
        result.total_bytes = volume.f_blocks * volume.f_frsize
        result.usable_bytes = volume.f_bavail * volume.f_frsize
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(results=[result])


def _sizes(broker: Broker, topic: str, indexes: Iterable[int]) -> list[DescribeLogDirsPartition]:
    return [
        DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size_bytes)
        for index in indexes
        if (partition := broker.topics.partition(topic, index)) is not None and partition.has_log
    ]
