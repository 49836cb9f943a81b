"""Every message kafkaprod knows: one module per API, both directions, all versions.

`REQUESTS` and `RESPONSES` find the class by API key; `client_versions` and `version_ranges` say what can be spoken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkaprod.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kafkaprod.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkaprod.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkaprod.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkaprod.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkaprod.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkaprod.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkaprod.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkaprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkaprod.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkaprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkaprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkaprod.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkaprod.protocol.schema import Message, Request, Response

REQUESTS: Final[Mapping[ApiKey, type[Request]]] = {
    request.api: request
    for request in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        ApiVersionsRequest,
        ConsumerGroupHeartbeatRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteGroupsRequest,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        EndTxnRequest,
        FetchRequest,
        FindCoordinatorRequest,
        GetTelemetrySubscriptionsRequest,
        HeartbeatRequest,
        IncrementalAlterConfigsRequest,
        InitProducerIdRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListGroupsRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
        ProduceRequest,
        PushTelemetryRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
    )
}

RESPONSES: Final[Mapping[ApiKey, type[Response]]] = {
    response.api: response
    for response in (
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnResponse,
        ApiVersionsResponse,
        ConsumerGroupHeartbeatResponse,
        CreatePartitionsResponse,
        CreateTopicsResponse,
        DeleteGroupsResponse,
        DeleteRecordsResponse,
        DeleteTopicsResponse,
        DescribeClusterResponse,
        DescribeConfigsResponse,
        DescribeGroupsResponse,
        EndTxnResponse,
        FetchResponse,
        FindCoordinatorResponse,
        GetTelemetrySubscriptionsResponse,
        HeartbeatResponse,
        IncrementalAlterConfigsResponse,
        InitProducerIdResponse,
        JoinGroupResponse,
        LeaveGroupResponse,
        ListGroupsResponse,
        ListOffsetsResponse,
        MetadataResponse,
        OffsetCommitResponse,
        OffsetFetchResponse,
        OffsetForLeaderEpochResponse,
        ProduceResponse,
        PushTelemetryResponse,
        SaslAuthenticateResponse,
        SaslHandshakeResponse,
        SyncGroupResponse,
        TxnOffsetCommitResponse,
    )
}


def client_versions(api: ApiKey) -> tuple[int, int]:
    """The (lowest, highest) version of a request a client of ours may send, unstable versions left out."""
    return stable_versions(REQUESTS[api])


def stable_versions(message: type[Message]) -> tuple[int, int]:
    """The (lowest, highest) version of a message that Kafka guarantees."""
    lowest, highest = message.versions
    return lowest, highest if message.unstable_from is None else message.unstable_from - 1


def version_ranges(
    handled: Iterable[ApiKey], limits: Mapping[ApiKey, int] | None = None
) -> dict[ApiKey, tuple[int, int]]:
    """What a broker announces: the range of each API it handles.

    Args:
        handled: The APIs with a handler.
        limits: Highest version of those APIs whose handlers do not support the latest declared one.
    """
    ranges = {}
    for api in sorted(handled):
        lowest, highest = client_versions(api)
        ranges[api] = (lowest, min(highest, (limits or {}).get(api, highest)))
    return ranges
