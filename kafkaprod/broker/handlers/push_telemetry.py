"""PushTelemetry (72): metrics that a client has to push (KIP-714)."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings.client_metrics import Push
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kafkaprod.protocol.schema import Response

API = ApiKey.PUSH_TELEMETRY
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(broker: Broker, request: ClientRequest[PushTelemetryRequest]) -> Response:
    """Keep the metrics."""
    body = request.body
    if body.client_instance_id is None:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    push = Push(request.client_id, body.client_instance_id, body.terminating, body.metrics)
    try:
        broker.client_metrics.take_push(
            push, body.subscription_id, body.compression_type, request.client_host, broker.clock.now_ms()
        )
    except BrokerError as error:
        return refuse(request, error.code)
    return PushTelemetryResponse()
