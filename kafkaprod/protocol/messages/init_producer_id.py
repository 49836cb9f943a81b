"""InitProducerId (22): a producer id and epoch, for idempotence or a transactional id.

    2  flexible                                 5  may answer TRANSACTION_ABORTABLE (KIP-890)
    3  current id and epoch, to bump (KIP-360)  6  two-phase commit (KIP-939); unstable
    4  may answer PRODUCER_FENCED

Source: KIP-98 and those above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, NULLABLE_STRING
from kafkaprod.protocol.schema import Request, Response, field


class InitProducerIdRequest(Request, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible_from=2, unstable_from=6):
    """Requests a producer id, or the next epoch of one."""

    transactional_id: str | None = field(NULLABLE_STRING)  # null: idempotent only
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)  # -1: a new one
    producer_epoch: int = field(INT16, since=3, default=-1)
    enable2_pc: bool = field(BOOL, since=6)
    keep_prepared_txn: bool = field(BOOL, since=6)


class InitProducerIdResponse(Response, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible_from=2, unstable_from=6):
    """The producer id and epoch to use."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1)
