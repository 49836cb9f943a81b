"""AddPartitionsToTxn (24): partitions a transaction is about to write to.

Clients use versions up to 3; from 4 on it is a request between brokers, batched, and can ask to verify only.

    2  may answer PRODUCER_FENCED     3  flexible     4  batched     5  may answer TRANSACTION_ABORTABLE

Source: KIP-98, KIP-890.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AddPartitionsToTxnTransaction(Struct):
    """One transaction and its new partitions."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    verify_only: bool = field(BOOL)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic))


class AddPartitionsToTxnRequest(Request, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible_from=3):
    """Partitions to add to transactions."""

    transactions: list[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), since=4)
    v3_and_below_transactional_id: str = field(STRING, until=3)
    v3_and_below_producer_id: int = field(INT64, until=3)
    v3_and_below_producer_epoch: int = field(INT16, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnTopicResult(Struct):
    """The outcomes for one topic."""

    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Struct):
    """The outcomes for one transaction."""

    transactional_id: str = field(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult))


class AddPartitionsToTxnResponse(Response, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible_from=3):
    """One error code per partition."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), until=3
    )
