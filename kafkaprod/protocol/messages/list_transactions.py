"""ListTransactions (66): the transactional ids of a coordinator.

    1  only those open for longer than a duration (KIP-994)     2  only ids that match a pattern (KIP-1152)

Source: KIP-664 and those above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ListTransactionsRequest(Request, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_from=0):
    """Which ids to list; an empty filter lets all pass."""

    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, since=1, default=-1)  # ms; -1: any
    transactional_id_pattern: str | None = field(NULLABLE_STRING, since=2, default=None)


class TransactionState(Struct):
    """One transactional id."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Response, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_from=0):
    """The ids that pass all filters."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[TransactionState] = field(array(TransactionState))
