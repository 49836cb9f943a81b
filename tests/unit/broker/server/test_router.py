"""The table of handlers: what is announced, and that every handler can refuse in every version."""

from __future__ import annotations

import ast
import inspect
import logging
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC
from kafkaprod.broker.server.router import COORDINATORS, HANDLERS, PEER_APIS, Handler, announced_versions, call, refuse
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.schema import Request, Response
from tests.support.broker.announced import versions_of_page
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.net.protocol_samples import samples

# What clients need to see to work; the reasons are in the handlers.
ANNOUNCED = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
}

EVERY_VERSION = [
    (api, version)
    for api, (_, highest) in announced_versions(takes_metrics=True).items()
    for version in range(REQUESTS[api].versions[0], highest + 1)
]


def test_announced_versions_are_those_clients_were_checked_against() -> None:
    assert announced_versions() == ANNOUNCED
    metrics = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)}
    assert announced_versions(takes_metrics=True) == ANNOUNCED | metrics


def test_the_page_says_what_is_announced_otherwise_than_by_kafka() -> None:
    announced = {int(api): found for api, found in announced_versions(takes_metrics=True).items()}
    rows = versions_of_page()
    assert len(rows) > 20
    assert {api: row.here for api, row in rows.items()} == {api: announced.get(api) for api in rows}
    assert all(row.kafka != row.here for row in rows.values())


def test_older_broker_announces_no_more_than_it_is_told_to() -> None:
    versions = announced_versions(max_versions={ApiKey.FETCH: 4, ApiKey.METADATA: 99})
    assert versions == ANNOUNCED | {ApiKey.FETCH: (4, 4)}
    with pytest.raises(ConfigError, match="FETCH begins with version 4, not 3"):
        announced_versions(max_versions={ApiKey.FETCH: 3})


def requests_of(api: ApiKey, version: int) -> list[Request]:
    """The corner cases of a request, as they come out of a frame."""
    request_class = REQUESTS[api]
    return [
        request_class.decode(bytearray(message.encode(version)), version) for message in samples(request_class, version)
    ]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_every_handler_refuses_in_every_version(api: ApiKey, version: int) -> None:
    for request in requests_of(api, version):
        response = refuse(ClientRequest(request, version, "c", "h"), ErrorCode.UNKNOWN_SERVER_ERROR)
        type(response).decode(response.encode(version), version)


@pytest.mark.parametrize("api", sorted(HANDLERS.keys() - PEER_APIS))
def test_every_handler_answers_corner_cases_with_what_each_version_can_say(
    api: ApiKey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = BrokerWithoutSockets(tmp_path)
    answered_count = 0
    for version in (version for key, version in EVERY_VERSION if key is api):
        for request in requests_of(api, version):
            for outcome in box.begin(request, version):
                response = outcome.response if isinstance(outcome, FileResponse) else outcome
                if isinstance(response, Response):
                    type(response).decode(response.encode(version), version)
                answered_count += 1
    assert answered_count > 0
    assert "failed" not in caplog.text
    box.broker.close()


def test_unforeseen_error_is_answered_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    handler: Any = SimpleNamespace(API=ApiKey.HEARTBEAT, LANE=Lane.CONTROL, MAX_VERSION=4, handle=fail)
    box = BrokerWithoutSockets(tmp_path)
    request: ClientRequest[Request] = ClientRequest(HeartbeatRequest(), 0, "c", "h")
    with caplog.at_level(logging.ERROR):
        outcome = call(handler, box.broker, request)
    assert isinstance(outcome, HeartbeatResponse)
    assert outcome.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "HEARTBEAT version 0 failed" in caplog.text


def test_api_versions_tells_the_table_and_checks_names(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path)
    good = ApiVersionsRequest(client_software_name="kafkaprod", client_software_version="0.1.0")
    response = box.ask(good, ApiVersionsResponse, 3)
    told = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert told == ANNOUNCED
    bad = ApiVersionsRequest(client_software_name="kafka_prod", client_software_version="0.1.0")
    assert box.ask(bad, ApiVersionsResponse, 3).error_code == ErrorCode.INVALID_REQUEST
    assert box.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "cluster_id", "node_id", "error"),
    [
        (5, "own", 0, ErrorCode.NONE),
        (5, None, -1, ErrorCode.NONE),
        (5, "other", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "own", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "own", -1, ErrorCode.INVALID_REQUEST),
        (5, None, 0, ErrorCode.INVALID_REQUEST),
        (4, "other", 1, ErrorCode.NONE),
    ],
)
def test_a_client_that_looks_for_another_broker_must_bootstrap_again(
    tmp_path: Path, version: int, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    """As KafkaApis of Apache Kafka 4.4 (KIP-1242)."""
    box = BrokerWithoutSockets(tmp_path)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1", node_id=node_id)
    request.cluster_id = box.broker.cluster_id if cluster_id == "own" else cluster_id
    request = ApiVersionsRequest.decode(bytearray(request.encode(version)), version)
    answer = box.ask(request, ApiVersionsResponse, version)
    assert (answer.error_code, bool(answer.api_keys)) == (error, error is ErrorCode.NONE)


def test_each_handler_module_documents_itself() -> None:
    handlers: list[Handler] = list(HANDLERS.values())
    assert all(handler.__doc__ for handler in handlers)


def test_coordinators_and_peers_are_those_of_kafka() -> None:
    topics = {api: coordinator.topic for api, coordinator in COORDINATORS.items()}
    assert sorted(api for api, topic in topics.items() if topic == TRANSACTIONS_TOPIC) == [
        *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
        *(ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
    ]
    assert sorted(api for api, topic in topics.items() if topic == OFFSETS_TOPIC) == [
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
        *(ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.TXN_OFFSET_COMMIT, ApiKey.DELETE_GROUPS),
        *(ApiKey.OFFSET_DELETE, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    ]
    assert [api for api, coordinator in COORDINATORS.items() if coordinator.is_asked_everywhere] == [
        ApiKey.LIST_TRANSACTIONS
    ]
    assert {ApiKey.REPLICATE_METADATA} == PEER_APIS


ROUTED_NAMES = {
    "API",
    "LANE",
    "MAX_VERSION",
    "COORDINATED_BY",
    "NEEDS_LEVEL",
    "PEERS_ONLY",
    "handle",
    "refuse",
    "authorize",
}
"""What the router reads; a misspelt one would be a name that is not here, and without effect."""

OTHER_NAMES = {
    ApiKey.ADD_PARTITIONS_TO_TXN: {"Errors"},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"MAX_PARTITIONS_OF_PAGE"},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"SET", "DELETE", "APPEND", "SUBTRACT"},
    ApiKey.LIST_OFFSETS: {
        *("LATEST", "EARLIEST", "MAX_TIMESTAMP", "EARLIEST_LOCAL", "LATEST_TIERED", "EARLIEST_PENDING_UPLOAD"),
    },
    ApiKey.METADATA: {"MAX_CREATED_AT_ONCE"},
    ApiKey.PRODUCE: {"logger", "NOT_LEADER"},
}


def public_names(source: str) -> set[str]:
    """Return the public names that a module itself makes at its top."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("api", HANDLERS)
def test_handler_has_no_public_name_that_nobody_reads(api: ApiKey) -> None:
    names = public_names(inspect.getsource(cast(ModuleType, HANDLERS[api])))
    assert names - ROUTED_NAMES == OTHER_NAMES.get(api, set())


def test_misspelt_names_of_a_handler_are_noticed() -> None:
    source = "CORDINATED_BY = GROUPS\nPEER_ONLY: bool = True\ndef authorise(): ...\ndef refused(): ...\nAPI = 1\n"
    assert public_names(source) - ROUTED_NAMES == {"CORDINATED_BY", "PEER_ONLY", "authorise", "refused"}
