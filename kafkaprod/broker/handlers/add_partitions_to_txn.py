"""AddPartitionsToTxn (24): make partitions part of a transaction, or check that they are.

    2  a fenced producer sees PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH
    4  for brokers: many transactions, and `VerifyOnly` (KIP-890)
All partitions of a transaction are added, or none: if one does not exist, it has UNKNOWN_TOPIC_OR_PARTITION, and the
others have OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.broker.coordinator.transaction import TV1, TV2, ProducerIdAndEpoch
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, RefuseRequest
from kafkaprod.broker.handlers.transaction_errors import for_version
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import CLUSTER, TOPIC, TRANSACTIONAL_ID
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kafkaprod.structs import TopicPartition

API = ApiKey.ADD_PARTITIONS_TO_TXN
LANE = Lane.CONTROL
MAX_VERSION = 5
COORDINATED_BY = TRANSACTIONS

_FIRST_VERSION_WITH_FENCED = 2
_FIRST_VERSION_OF_BATCHES = 4

Errors = Mapping[TopicPartition, int]


def handle(broker: Broker, request: ClientRequest[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    """Add or verify, transaction by transaction."""
    is_batched = request.version >= _FIRST_VERSION_OF_BATCHES
    answers = []
    for transaction in _transactions(request):
        errors = _add(broker, transaction, TV2 if is_batched else TV1)
        answers.append(
            (transaction, {key: _error_for_version(error, request.version) for key, error in errors.items()})
        )
    return _response(request.version, answers)


def refuse(request: ClientRequest[AddPartitionsToTxnRequest], error_code: int) -> AddPartitionsToTxnResponse:
    """Answer the error for every partition."""
    answers = [(item, dict.fromkeys(_partitions(item), error_code)) for item in _transactions(request)]
    response = _response(request.version, answers)
    if request.version >= _FIRST_VERSION_OF_BATCHES:
        response.error_code = error_code
    return response


def _transactions(request: ClientRequest[AddPartitionsToTxnRequest]) -> list[AddPartitionsToTxnTransaction]:
    body = request.body
    if request.version >= _FIRST_VERSION_OF_BATCHES:
        return body.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            topics=body.v3_and_below_topics,
        )
    ]


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]


def _add(
    broker: Broker, transaction: AddPartitionsToTxnTransaction, client_version: int
) -> Mapping[TopicPartition, ErrorCode]:
    transactional_id = transaction.transactional_id
    given = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    partitions = _partitions(transaction)
    unknown = {key for key in partitions if broker.topics.partition(*key) is None}
    if unknown:
        return {
            key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if key in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            for key in partitions
        }
    if transaction.verify_only:
        return broker.transactions.verify(transactional_id, given, partitions)
    now_ms = broker.clock.wall_ms()
    error = broker.transactions.add_partitions(transactional_id, given, partitions, client_version, now_ms)
    return dict.fromkeys(partitions, error)


def _error_for_version(error: ErrorCode, version: int) -> ErrorCode:
    return for_version(error, version, _FIRST_VERSION_WITH_FENCED)


def _response(
    version: int, answers: Sequence[tuple[AddPartitionsToTxnTransaction, Errors]]
) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=[_topic(topic, errors) for topic in transaction.topics],
        )
        for transaction, errors in answers
    ]
    if version >= _FIRST_VERSION_OF_BATCHES:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _topic(topic: AddPartitionsToTxnTopic, errors: Errors) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
            )
            for index in topic.partitions
        ],
    )


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Refuse all if the id or one topic is not allowed. Versions of several transactions are for brokers alone.

    CLUSTER_AUTHORIZATION_FAILED in those. TRANSACTIONAL_ID_AUTHORIZATION_FAILED in the others, or
    TOPIC_AUTHORIZATION_FAILED for the topic and OPERATION_NOT_ATTEMPTED for the rest.
    """
    body = authorizer.request.body
    if authorizer.request.version >= _FIRST_VERSION_OF_BATCHES:
        if authorizer.may(acls.CLUSTER_ACTION, CLUSTER):
            return call(authorizer.request)
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not authorizer.may(acls.WRITE, TRANSACTIONAL_ID, body.v3_and_below_transactional_id):
        return deny(authorizer.request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = body.v3_and_below_topics
    denied = {topic.name for topic in topics if not authorizer.may(acls.WRITE, TOPIC, topic.name)}
    if not denied:
        return call(authorizer.request)
    response: Any = deny(authorizer.request, ErrorCode.OPERATION_NOT_ATTEMPTED)
    response.error_code = ErrorCode.NONE
    for topic in response.results_by_topic_v3_and_below:
        for outcome in topic.results_by_partition if topic.name in denied else ():
            outcome.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return response
