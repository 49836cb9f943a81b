"""DescribeClientQuotas (48): the quotas that were set."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.settings.quotas import Filter
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

API = ApiKey.DESCRIBE_CLIENT_QUOTAS
LANE = Lane.CONTROL
MAX_VERSION = 1


def handle(broker: Broker, request: ClientRequest[DescribeClientQuotasRequest]) -> DescribeClientQuotasResponse:
    """Find the entities that match all components."""
    filters = [Filter(part.entity_type, part.match_type, part.match) for part in request.body.components]
    try:
        found = broker.quotas.find(filters, is_strict=request.body.strict)
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ]
    )
