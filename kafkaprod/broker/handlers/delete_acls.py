"""DeleteAcls (31): delete the access control entries that filters match."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings.acl_search import AclSearch
from kafkaprod.broker.settings.acls import CHANGES_OF_STEP, Acl, AclFilter, check_filter, check_removal
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.DELETE_ACLS
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[DeleteAclsRequest]) -> Outcome:
    """Find filter by filter, then delete in steps; what two filters match is in the answer of the first."""
    return run_in_control_steps(broker, _delete_all(broker, request), partial(refuse, request))


def _delete_all(broker: Broker, request: ClientRequest[DeleteAclsRequest]) -> PausingSteps[Response]:
    search = AclSearch(broker.acls.all)
    results = []
    for wanted in request.body.filters:
        results.append(_find(search, wanted))
        yield Pause.SHORT
    try:
        check_removal(search.taken)
    except BrokerError as error:
        return refuse(request, error.code)
    left = list(search.taken)
    while left:
        step = left[:CHANGES_OF_STEP]
        try:
            broker.acls.remove(step)
        except BrokerError as error:
            _note_failure(results, frozenset(left), error.code)
            break
        left = left[CHANGES_OF_STEP:]
        yield Pause.SHORT
    return DeleteAclsResponse(filter_results=results)


def _note_failure(results: Iterable[DeleteAclsFilterResult], left: Container[Acl], code: int) -> None:
    """Answer an error for the entries that are left."""
    for result in results:
        for each in result.matching_acls:
            acl = Acl(
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            if acl in left:
                each.error_code = code


def _find(search: AclSearch, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
    """Answer what a filter matches but others before it do not."""
    acl_filter = AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    try:
        check_filter(acl_filter)
    except BrokerError as error:
        return DeleteAclsFilterResult(error_code=error.code, error_message=str(error))
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in search.take(acl_filter)
        ]
    )
