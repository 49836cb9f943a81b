"""DeleteAcls (31): delete the access control entries that filters match."""

from __future__ import annotations

from kafkaprod.broker.cluster.acls import AclFilter
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

API = ApiKey.DELETE_ACLS
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Delete filter by filter; what two filters match is in the answer of the first."""
    return DeleteAclsResponse(filter_results=[_delete(broker, wanted) for wanted in request.body.filters])


def refuse(request: ClientRequest[DeleteAclsRequest], error_code: int) -> DeleteAclsResponse:
    """Answer the error for every filter."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error_code) for _ in request.body.filters]
    )


def _delete(broker: Broker, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
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
        found = broker.acls.find(acl_filter)
        broker.acls.remove(found)
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
            for acl in found
        ]
    )
