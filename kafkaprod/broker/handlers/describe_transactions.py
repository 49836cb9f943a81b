"""DescribeTransactions (65): the state of transactional ids."""

from __future__ import annotations

from typing import Any, Final

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.broker.coordinator.transaction import Transaction
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import TOPIC, TRANSACTIONAL_ID
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

API = ApiKey.DESCRIBE_TRANSACTIONS
LANE = Lane.CONTROL
MAX_VERSION = 0
COORDINATED_BY = TRANSACTIONS

_RIGHT: Final = ItemRight(acls.DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", "transaction_states", "")


def handle(broker: Broker, request: ClientRequest[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    """Look each id up: TRANSACTIONAL_ID_NOT_FOUND for one that is not known, INVALID_REQUEST for an empty one."""
    states = broker.transactions.states
    return DescribeTransactionsResponse(
        transaction_states=[_describe(key, states.get(key)) for key in dict.fromkeys(request.body.transactional_ids)]
    )


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the ids, then leave out the topics that may not be described."""
    response: Any = authorizer.split(call, deny, _RIGHT)
    for state in response.transaction_states:
        state.topics = [topic for topic in state.topics if authorizer.may(acls.DESCRIBE, TOPIC, topic.topic)]
    return response


def _describe(transactional_id: str, transaction: Transaction | None) -> TransactionState:
    if transaction is None:
        error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return TransactionState(transactional_id=transactional_id, error_code=error_code)
    topics: dict[str, TopicData] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, TopicData(topic=topic)).partitions.append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=list(topics.values()),
    )
