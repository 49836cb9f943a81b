"""DescribeProducers (61): the producers a partition remembers, and their open transactions.

Source: KIP-664.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class DescribeProducersRequest(Request, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible_from=0):
    """The partitions to look at."""

    topics: list[TopicRequest] = field(array(TopicRequest))


class ProducerState(Struct):
    """One producer of a partition."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)  # wider than everywhere else
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)  # -1 before the first marker
    current_txn_start_offset: int = field(INT64, default=-1)  # -1: no transaction is open


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING, default=None)
    active_producers: list[ProducerState] = field(array(ProducerState))


class TopicResponse(Struct):
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


class DescribeProducersResponse(Response, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible_from=0):
    """The producers by partition."""

    throttle_time_ms: int = field(INT32)
    topics: list[TopicResponse] = field(array(TopicResponse))
