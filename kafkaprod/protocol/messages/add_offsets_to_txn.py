"""AddOffsetsToTxn (25): a transaction is about to commit offsets of a group.

    2  may answer PRODUCER_FENCED     3  flexible     4  may answer TRANSACTION_ABORTABLE

Source: KIP-98, KIP-890.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, STRING
from kafkaprod.protocol.schema import Request, Response, field


class AddOffsetsToTxnRequest(Request, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_from=3):
    """The group whose offsets the transaction will commit."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Response, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_from=3):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
