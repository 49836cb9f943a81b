"""DescribeCluster (60): the brokers that are not fenced."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.nodes import controller_id, live_nodes
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings.authorized_operations import CLUSTER_OPERATIONS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.DESCRIBE_CLUSTER
LANE = Lane.CONTROL
MAX_VERSION = 2

_BROKERS = 1
_CONTROLLERS = 2


def handle(broker: Broker, request: ClientRequest[DescribeClusterRequest]) -> Response:
    """Describe the cluster; MISMATCHED_ENDPOINT_TYPE for controllers, UNSUPPORTED_ENDPOINT_TYPE for other types."""
    if request.body.endpoint_type != _BROKERS:
        is_known = request.body.endpoint_type == _CONTROLLERS
        return refuse(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in live_nodes(broker, request.endpoint)
        ],
    )
    if request.body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
