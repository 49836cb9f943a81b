"""EndTxn (26): commit or abort a transaction.

    2  may answer PRODUCER_FENCED     4  may answer TRANSACTION_ABORTABLE
    3  flexible                       5  answers the next id and epoch (KIP-890)

Source: KIP-98, KIP-890.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, STRING
from kafkaprod.protocol.schema import Request, Response, field


class EndTxnRequest(Request, api=ApiKey.END_TXN, versions=(0, 5), flexible_from=3):
    """Ends the transaction."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)  # true commits, false aborts


class EndTxnResponse(Response, api=ApiKey.END_TXN, versions=(0, 5), flexible_from=3):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, since=5, default=-1, ignorable=True)  # -1: keep the same
    producer_epoch: int = field(INT16, since=5, default=-1, ignorable=True)
