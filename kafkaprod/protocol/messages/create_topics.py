"""CreateTopics (19).

    4  -1 means the broker's defaults (KIP-464)        6  may answer THROTTLING_QUOTA_EXCEEDED
    5  flexible; answers partitions and configs        7  topic id (KIP-516)

Source: KIP-4, KIPs above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class CreatableReplicaAssignment(Struct):
    """Where the replicas of one partition go."""

    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Struct):
    """One option of the new topic."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)


class CreatableTopic(Struct):
    """A topic to create."""

    name: str = field(STRING)
    num_partitions: int = field(INT32)  # -1: the default, or see assignments
    replication_factor: int = field(INT16)  # -1: the default, or see assignments
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


class CreateTopicsRequest(Request, api=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible_from=5):
    """Topics to create."""

    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL)


class CreatableTopicConfigs(Struct):
    """One option of the created topic."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)


class CreatableTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(STRING)
    topic_id: uuid.UUID | None = field(UUID, since=7, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    topic_config_error_code: int = field(INT16, since=5, tag=0, ignorable=True)
    num_partitions: int = field(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = field(INT16, since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs).nullable(), since=5, ignorable=True
    )


class CreateTopicsResponse(Response, api=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible_from=5):
    """The outcome for each topic."""

    throttle_time_ms: int = field(INT32)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
