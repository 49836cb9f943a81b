"""AllocateProducerIds (67): the controller gives a broker a block of producer ids. Source: KIP-730."""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64
from kafkaprod.protocol.schema import Request, Response, field


class AllocateProducerIdsRequest(Request, api=ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible_from=0):
    """Who asks."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


class AllocateProducerIdsResponse(Response, api=ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible_from=0):
    """The block."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id_start: int = field(INT64)
    producer_id_len: int = field(INT32)
