"""CreateAcls (30): add access control entries. They count from the next request on."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings.acls import CHANGES_OF_STEP, Acl, check_new
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kafkaprod.protocol.schema import Response

API = ApiKey.CREATE_ACLS
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[CreateAclsRequest]) -> Outcome:
    """Check entry by entry, then add the good ones in steps."""
    return run_in_control_steps(broker, _create_all(broker, request), partial(refuse, request))


def _create_all(broker: Broker, request: ClientRequest[CreateAclsRequest]) -> PausingSteps[Response]:
    results = []
    good: list[tuple[Acl, AclCreationResult]] = []
    for creation in request.body.creations:
        acl = Acl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        result = AclCreationResult()
        try:
            check_new(acl)
            good.append((acl, result))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
        yield Pause.SHORT
    try:
        broker.acls.check_addition(acl for acl, _ in good)
    except BrokerError as error:
        return refuse(request, error.code)
    while good:
        step, good = good[:CHANGES_OF_STEP], good[CHANGES_OF_STEP:]
        try:
            broker.acls.add(acl for acl, _ in step)
        except BrokerError as error:
            for _, result in (*step, *good):
                result.error_code = error.code
            break
        yield Pause.SHORT
    return CreateAclsResponse(results=results)
