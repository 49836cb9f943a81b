"""UnregisterBroker (64): forget a broker for good. Source: KIP-631."""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING
from kafkaprod.protocol.schema import Request, Response, field


class UnregisterBrokerRequest(Request, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible_from=0):
    """The broker to forget."""

    broker_id: int = field(INT32)


class UnregisterBrokerResponse(Response, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible_from=0):
    """Whether it is forgotten."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
