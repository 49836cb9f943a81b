"""DescribeTransactions (65): the state of transactional ids at their coordinator.

Source: KIP-664.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DescribeTransactionsRequest(Request, api=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_from=0):
    """The ids to look at."""

    transactional_ids: list[str] = field(array(STRING))


class TopicData(Struct):
    """Partitions of one topic that are part of a transaction."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TransactionState(Struct):
    """One transactional id."""

    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)  # -1: no transaction
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


class DescribeTransactionsResponse(Response, api=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_from=0):
    """The states."""

    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(array(TransactionState))
