"""Metadata (3): brokers, topics, partitions and their leaders.

    0  an empty topic list means all          8  authorized operations, as bit fields
    1  null means all, empty means none       9  flexible; leader epochs are reliable from here on
    2  cluster id                            10  topic ids in the response
    3  throttle time                         11  no cluster operations any more (see DescribeCluster)
    4  auto-creation can be declined         12  topics can be requested by id
    5  offline replicas                      13  top-level error code (KIP-1102)
    7  leader epochs

Source: protocol guide, KIP-320, KIP-516, KIP-700, KIP-1102.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, NULLABLE_STRING, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field

NOT_REQUESTED = -(1 << 31)  # of authorized operations


class MetadataRequestTopic(Struct):
    """A topic, by name or by id."""

    topic_id: uuid.UUID | None = field(UUID, since=10, ignorable=True)
    name: str | None = field(STRING.nullable(since=10))


class MetadataRequest(Request, api=ApiKey.METADATA, versions=(0, 13), flexible_from=9):
    """Requests the cluster and some or all topics."""

    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic).nullable(since=1))  # null: all topics
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10)
    include_topic_authorized_operations: bool = field(BOOL, since=8)


class MetadataResponseBroker(Struct):
    """A broker and its address."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING, since=1, ignorable=True)


class MetadataResponsePartition(Struct):
    """A partition and its replicas."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)  # -1: no leader
    leader_epoch: int = field(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    """A topic and its partitions."""

    error_code: int = field(INT16)
    name: str | None = field(STRING.nullable(since=12))  # null: the requested id is unknown
    topic_id: uuid.UUID | None = field(UUID, since=10, ignorable=True)
    is_internal: bool = field(BOOL, since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=NOT_REQUESTED)


class MetadataResponse(Response, api=ApiKey.METADATA, versions=(0, 13), flexible_from=9):
    """The cluster as one broker sees it."""

    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(NULLABLE_STRING, since=2, ignorable=True)
    controller_id: int = field(INT32, since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=NOT_REQUESTED)
    error_code: int = field(INT16, since=13, ignorable=True)
