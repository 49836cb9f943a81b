"""AlterClientQuotas (49): set and remove quotas, which count from the next request on."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings.quotas import Change, Entity, Quotas
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


_ENTITIES_OF_STEP = 1_000  # each may have four quotas; each step copies all of them


def handle(broker: Broker, request: ClientRequest[AlterClientQuotasRequest]) -> Outcome:
    """Check each entity, then change those that may be, each as a whole."""
    return run_in_control_steps(broker, _alter_all(broker.quotas, request.body), partial(refuse, request))


def _alter_all(quotas: Quotas, body: AlterClientQuotasRequest) -> PausingSteps[Response]:
    results = []
    good: list[tuple[Entity, list[Change], EntryResult]] = []
    for entry in body.entries:
        result = EntryResult(entity=entry.entity)
        parts = [(part.entity_type, part.entity_name) for part in entry.entity]
        changes = [Change(op.key, None if op.remove else op.value) for op in entry.ops]
        try:
            quotas.check(parts, changes)
            good.append((dict(parts), changes, result))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
        yield Pause.SHORT
    while good and not body.validate_only:
        step, good = good[:_ENTITIES_OF_STEP], good[_ENTITIES_OF_STEP:]
        try:
            quotas.alter((entity, changes) for entity, changes, _ in step)
        except BrokerError as error:
            for _, _, result in (*step, *good):
                result.error_code = error.code
            break
        yield Pause.SHORT
    return AlterClientQuotasResponse(entries=results)
