"""GetTelemetrySubscriptions (71): which metrics a client has to push (KIP-714)."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings.client_metrics import ACCEPTED_CODECS, MAX_BYTES
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(broker: Broker, request: ClientRequest[GetTelemetrySubscriptionsRequest]) -> Response:
    """Answer the subscription, and the client's id; THROTTLING_QUOTA_EXCEEDED if it asks too often."""
    try:
        instance_id, subscription = broker.client_metrics.subscribe(
            request.body.client_instance_id, request.client_id, request.client_host, broker.clock.now_ms()
        )
    except BrokerError as error:
        return refuse(request, error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.number,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
        requested_metrics=subscription.prefixes,
    )
