"""DescribeCluster (60): cluster id, controller, brokers.

    1  brokers or controllers (KIP-919)     2  fenced brokers (KIP-1073)

Source: KIP-700, KIPs above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field

NOT_REQUESTED = -(1 << 31)  # of authorized operations


class DescribeClusterRequest(Request, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_from=0):
    """Requests the cluster's brokers."""

    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: bool = field(BOOL, since=2)


class DescribeClusterBroker(Struct):
    """A broker and its address."""

    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING)
    is_fenced: bool = field(BOOL, since=2)


class DescribeClusterResponse(Response, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible_from=0):
    """The cluster."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    endpoint_type: int = field(INT8, since=1, default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=NOT_REQUESTED)
