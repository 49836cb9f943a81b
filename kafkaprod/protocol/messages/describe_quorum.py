"""DescribeQuorum (55): the quorum of controllers.

    1  times of the last fetch (KIP-836)     2  directories and listeners of voters (KIP-853)

Source: KIP-595, KIPs above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, STRING, UINT16, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class PartitionData(Struct):
    """One partition."""

    partition_index: int = field(INT32)


class TopicData(Struct):
    """Partitions of one topic."""

    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class DescribeQuorumRequest(Request, api=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible_from=0):
    """Partitions to describe."""

    topics: list[TopicData] = field(array(TopicData))


class ReplicaState(Struct):
    """How far one replica is."""

    replica_id: int = field(INT32)
    replica_directory_id: uuid.UUID | None = field(UUID, since=2)
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, since=1, default=-1, ignorable=True)


class QuorumPartition(Struct):
    """The quorum of one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING.nullable(since=2), since=2, ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


class QuorumTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = field(STRING)
    partitions: list[QuorumPartition] = field(array(QuorumPartition))


class Listener(Struct):
    """An address of a controller."""

    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class Node(Struct):
    """A controller and its addresses."""

    node_id: int = field(INT32)
    listeners: list[Listener] = field(array(Listener))


class DescribeQuorumResponse(Response, api=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible_from=0):
    """The quorum."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING.nullable(since=2), since=2, ignorable=True)
    topics: list[QuorumTopic] = field(array(QuorumTopic))
    nodes: list[Node] = field(array(Node), since=2)
