"""ListTransactions (66): the transactional ids that pass all filters.

1    only those whose transaction is open for longer than a duration (KIP-994); without one it counts as endless
2    only ids that match a regular expression as a whole (KIP-1152)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator import transaction as transactions
from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.broker.coordinator.topic_regex import TopicRegex
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, RefuseRequest
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import TRANSACTIONAL_ID
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

API = ApiKey.LIST_TRANSACTIONS
LANE = Lane.CONTROL
MAX_VERSION = 2
COORDINATED_BY = TRANSACTIONS._replace(is_asked_everywhere=True)

_STATES = {state.title: state for state in transactions.TransactionState}


def handle(broker: Broker, request: ClientRequest[ListTransactionsRequest]) -> ListTransactionsResponse:
    """List the ids."""
    body, states = request.body, broker.transactions.states
    is_wanted = _filter(body, broker.clock.wall_ms())
    wanted = [each for each in states.values() if is_wanted(each)]
    if body.transactional_id_pattern:
        try:
            ids = TopicRegex(body.transactional_id_pattern).matching(each.transactional_id for each in wanted)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        wanted = [each for each in wanted if each.transactional_id in ids]
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in body.state_filters if name not in _STATES],
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in wanted
        ],
    )


def _filter(body: ListTransactionsRequest, now_ms: int) -> Callable[[transactions.Transaction], bool]:
    states = {_STATES[name] for name in body.state_filters if name in _STATES}
    producer_ids = set(body.producer_id_filters)

    def is_wanted(transaction: transactions.Transaction) -> bool:
        return (
            transaction.state is not transactions.TransactionState.DEAD
            and (not body.state_filters or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (body.duration_filter < 0 or now_ms - transaction.start_ms > body.duration_filter)
        )

    return is_wanted


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Leave out the ids that may not be described."""
    response: Any = call(authorizer.request)
    response.transaction_states = [
        state
        for state in response.transaction_states
        if authorizer.may(acls.DESCRIBE, TRANSACTIONAL_ID, state.transactional_id)
    ]
    return response
