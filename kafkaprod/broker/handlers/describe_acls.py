"""DescribeAcls (29): the entries a filter matches, by resource."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.settings.acls import AclFilter
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

API = ApiKey.DESCRIBE_ACLS
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[DescribeAclsRequest]) -> DescribeAclsResponse:
    """Find the entries."""
    body = request.body
    wanted = AclFilter(
        body.resource_type_filter,
        body.resource_name_filter,
        body.pattern_type_filter,
        body.principal_filter,
        body.host_filter,
        body.operation,
        body.permission_type,
    )
    try:
        found = broker.acls.find(wanted)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=str(error))
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in found:
        pattern = (acl.resource_type, acl.name, acl.pattern_type)
        if pattern not in resources:
            resources[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type
            )
        resources[pattern].acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))
