"""PushTelemetry (72): metrics of this client, as OTLP MetricsData. Source: KIP-714."""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, BYTES, INT8, INT16, INT32, UUID
from kafkaprod.protocol.schema import Request, Response, field


class PushTelemetryRequest(Request, api=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_from=0):
    """Metrics of a client."""

    client_instance_id: uuid.UUID | None = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOL)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


class PushTelemetryResponse(Response, api=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible_from=0):
    """The outcome."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
