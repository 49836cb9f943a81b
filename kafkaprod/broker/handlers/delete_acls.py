"""DeleteAcls (31): delete the access control entries that filters match."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, Steps, run_in_control_steps
from kafkaprod.broker.cluster.acl_search import AclSearch
from kafkaprod.broker.cluster.acls import AclFilter, check_filter
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
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
    """Find filter by filter, then delete at once; what two filters match is in the answer of the first."""
    return run_in_control_steps(broker, _delete_all(broker, request), partial(refuse, request))


def _delete_all(broker: Broker, request: ClientRequest[DeleteAclsRequest]) -> Steps[Response]:
    search = AclSearch(broker.acls.all)
    results = []
    for wanted in request.body.filters:
        results.append(_find(search, wanted))
        yield Pause.SHORT
    try:
        broker.acls.remove(search.taken)
    except BrokerError as error:
        return refuse(request, error.code)
    return DeleteAclsResponse(filter_results=results)


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
