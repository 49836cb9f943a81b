"""GetTelemetrySubscriptions (71): which metrics the broker wants from this client, and how often. Source: KIP-714."""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, field


class GetTelemetrySubscriptionsRequest(
    Request, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_from=0
):
    """Requests the subscription of a client."""

    client_instance_id: uuid.UUID | None = field(UUID)  # None: the broker gives one


class GetTelemetrySubscriptionsResponse(
    Response, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible_from=0
):
    """The subscription."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    client_instance_id: uuid.UUID | None = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOL)
    requested_metrics: list[str] = field(array(STRING))
