"""ElectLeaders (43): have leaders elected. Election types: 0 preferred, 1 unclean.

    1  election type (KIP-460)     2  flexible

Source: KIP-183, KIP-460.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ElectLeadersRequest(Request, api=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_from=2):
    """Partitions; null means all."""

    election_type: int = field(INT8, since=1)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions).nullable())
    timeout_ms: int = field(INT32, default=60000)


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


class ReplicaElectionResult(Struct):
    """The outcome for one topic."""

    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


class ElectLeadersResponse(Response, api=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible_from=2):
    """The outcome for each partition."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=1)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
