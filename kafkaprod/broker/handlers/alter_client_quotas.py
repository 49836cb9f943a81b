"""AlterClientQuotas (49): set and remove quotas, which count from the next request on."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.quotas import Change, Entity
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.ALTER_CLIENT_QUOTAS
LANE = Lane.CONTROL
MAX_VERSION = 1


def handle(broker: Broker, request: ClientRequest[AlterClientQuotasRequest]) -> Response:
    """Check each entity, then change those that may be, all or none."""
    results = []
    good: list[tuple[Entity, list[Change]]] = []
    for entry in request.body.entries:
        result = EntryResult(entity=entry.entity)
        parts = [(part.entity_type, part.entity_name) for part in entry.entity]
        changes = [Change(op.key, None if op.remove else op.value) for op in entry.ops]
        try:
            broker.quotas.check(parts, changes)
            good.append((dict(parts), changes))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    if not request.body.validate_only:
        try:
            broker.quotas.alter(good)
        except BrokerError as error:
            return refuse(request, error.code)
    return AlterClientQuotasResponse(entries=results)
