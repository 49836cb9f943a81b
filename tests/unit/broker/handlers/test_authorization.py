"""What a client gets whose rights do not cover a request, by API."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import CloseConnectionError
from kafkaprod.broker.handlers.authorization import ITEM_RIGHTS, RIGHTS
from kafkaprod.broker.server.router import HANDLERS, PEER_APIS, SPECIAL_RULES
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from kafkaprod.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafkaprod.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from kafkaprod.protocol.messages.produce import ProduceResponse
from kafkaprod.protocol.schema import Response
from tests.support.broker.broker_requests import commit, committed, fetch, metadata, produce, produce_request
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.protocol_samples import samples

OPEN = {
    *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER),
    *(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
}
"""APIs that need no right, in Kafka too."""
BY_PRINCIPAL = {
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN),
    *(ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN),
}
"""APIs whose handlers decide by who asks, for which tokens; see tests/unit/broker/handlers/test_tokens.py."""


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    """Ann may write to `mine`, and nobody else has a right to anything but root."""
    box = BrokerWithoutSockets(
        tmp_path, topics={"mine": 1, "other": 1}, super_users="User:root", allow_everyone_if_no_acl_found=False
    )
    allow(box, acls.WRITE, acls.TOPIC, "mine")
    box.user = "ann"
    return box


def allow(box: BrokerWithoutSockets, operation: int, resource_type: int, name: str) -> None:
    box.broker.acls.add([Acl(resource_type, name, acls.LITERAL, "User:ann", "*", operation, acls.ALLOW)])


def test_every_api_has_its_rule() -> None:
    # Give a new API its line in kafkaprod/broker/handlers/authorization.py, its module an `authorize`,
    # or its key a place here if no ACL can refuse it.
    assert set(HANDLERS) == {*RIGHTS, *ITEM_RIGHTS, *SPECIAL_RULES, *OPEN, *BY_PRINCIPAL, *PEER_APIS}
    assert not (OPEN | BY_PRINCIPAL) & {*RIGHTS, *ITEM_RIGHTS, *SPECIAL_RULES}


@pytest.mark.parametrize("api", sorted(set(HANDLERS) - OPEN - PEER_APIS))
def test_whoever_may_nothing_is_answered_in_every_version(
    api: ApiKey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={"t": 1}, allow_everyone_if_no_acl_found=False)
    low, high = REQUESTS[api].versions
    for version in range(low, min(high, HANDLERS[api].MAX_VERSION) + 1):
        for message in samples(REQUESTS[api], version):
            request = REQUESTS[api].decode(bytearray(message.encode(version)), version)
            try:
                outcomes: list[Any] = box.begin(request, version)
            except CloseConnectionError:
                continue  # acks=0
            for outcome in outcomes:
                response = outcome.response if isinstance(outcome, FileResponse) else outcome
                if isinstance(response, Response):
                    type(response).decode(response.encode(version), version)
    assert "failed" not in caplog.text


def test_topics_are_refused_one_by_one(box: BrokerWithoutSockets) -> None:
    assert produce(box, make_batch(), topic="mine").error_code == 0
    assert produce(box, make_batch(), topic="other").error_code == 29
    both = produce_request(make_batch(), topic="mine")
    both.topic_data += produce_request(make_batch(), topic="other").topic_data
    answer = box.ask(both, ProduceResponse, 9)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"mine": 0, "other": 29}
    assert fetch(box, topic="mine").error_code == 29
    allow(box, acls.READ, acls.TOPIC, "mine")
    assert fetch(box, topic="mine").error_code == 0


def test_transactional_records_need_their_id_and_the_right_to_it(box: BrokerWithoutSockets) -> None:
    batch = make_batch(producer_id=5, epoch=0, sequence=0, is_transactional=True)
    assert produce(box, batch, topic="mine").error_code == 53
    assert produce(box, batch, topic="mine", transaction="other").error_code == 53
    with pytest.raises(CloseConnectionError):
        box.begin(produce_request(batch, topic="mine", acks=0), 9)
    assert produce(box, make_batch(), topic="mine", transaction="other").error_code == 0
    box.user = "root"
    assert produce(box, batch, topic="mine").error_code == 53


def test_only_brokers_fetch_as_replicas_and_add_partitions_of_several_transactions(box: BrokerWithoutSockets) -> None:
    allow(box, acls.READ, acls.TOPIC, "mine")
    allow(box, acls.WRITE, acls.TRANSACTIONAL_ID, "x")
    assert fetch(box, topic="mine", replica_id=1).error_code == 29
    transaction = AddPartitionsToTxnTransaction(transactional_id="x", producer_id=0, producer_epoch=0)
    add = AddPartitionsToTxnRequest(transactions=[transaction])
    assert box.ask(add, AddPartitionsToTxnResponse, 4).error_code == 31
    allow(box, acls.CLUSTER_ACTION, acls.CLUSTER, acls.CLUSTER_NAME)
    assert fetch(box, topic="other", replica_id=1).error_code == 0
    assert box.ask(add, AddPartitionsToTxnResponse, 4).error_code == 0


def test_unanswered_records_that_are_refused_close_the_connection(box: BrokerWithoutSockets) -> None:
    assert box.has_no_answer(produce_request(make_batch(), topic="mine", acks=0), 9)
    with pytest.raises(CloseConnectionError):
        box.begin(produce_request(make_batch(), topic="other", acks=0), 9)


def test_metadata_shows_what_may_be_described(box: BrokerWithoutSockets) -> None:
    assert [topic.name for topic in metadata(box, None).topics] == ["mine"]
    named = metadata(box, ["mine", "other", "fresh"]).topics
    assert {topic.name: topic.error_code for topic in named} == {"mine": 0, "other": 29, "fresh": 29}
    allow(box, acls.DESCRIBE, acls.TOPIC, "fresh")
    assert metadata(box, ["fresh"], allow_auto_topic_creation=True).topics[0].error_code == 29
    allow(box, acls.CREATE, acls.TOPIC, "fresh")
    assert metadata(box, ["fresh"], allow_auto_topic_creation=True).topics[0].error_code == 0
    (mine,) = metadata(box, ["mine"], version=8, include_topic_authorized_operations=True).topics
    assert mine.topic_authorized_operations == 1 << acls.WRITE | 1 << acls.DESCRIBE
    topic_id = box.broker.topics.get("other").topic_id  # type: ignore[union-attr]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    assert [topic.error_code for topic in box.ask(request, MetadataResponse, 12).topics] == [100]


def test_groups_and_their_offsets(box: BrokerWithoutSockets) -> None:
    assert commit(box, 7, topic="mine") == 30
    allow(box, acls.READ, acls.GROUP, "g")
    assert commit(box, 7, topic="mine") == 29
    allow(box, acls.READ, acls.TOPIC, "mine")
    assert commit(box, 7, topic="mine") == 0
    assert [group.group_id for group in box.ask(ListGroupsRequest(), ListGroupsResponse, 4).groups] == ["g"]
    box.user = "bob"
    assert box.ask(ListGroupsRequest(), ListGroupsResponse, 4).groups == []


def test_producer_ids_need_some_topic(box: BrokerWithoutSockets) -> None:
    assert box.ask(InitProducerIdRequest(transaction_timeout_ms=1), InitProducerIdResponse, 4).error_code == 0
    transactional = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert box.ask(transactional, InitProducerIdResponse, 4).error_code == 53
    box.user = "bob"
    assert box.ask(InitProducerIdRequest(transaction_timeout_ms=1), InitProducerIdResponse, 4).error_code == 31


def create(box: BrokerWithoutSockets, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return box.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7).topics[0].error_code


def test_topics_are_made_with_a_right_to_the_topic_or_the_cluster(box: BrokerWithoutSockets) -> None:
    assert create(box, "new") == 29
    allow(box, acls.CREATE, acls.TOPIC, "new")
    assert create(box, "new") == 0
    allow(box, acls.CREATE, acls.CLUSTER, acls.CLUSTER_NAME)
    assert create(box, "newer") == 0


def test_acls_are_made_and_shown_by_whoever_may(box: BrokerWithoutSockets) -> None:
    def creation(name: str) -> AclCreation:
        return AclCreation(
            resource_type=acls.GROUP,
            resource_name=name,
            principal="User:bob",
            host="*",
            operation=acls.READ,
            permission_type=acls.ALLOW,
        )

    request = CreateAclsRequest(creations=[creation("g")])
    assert box.ask(request, CreateAclsResponse, 3).results[0].error_code == 31
    box.user = "root"
    assert box.ask(request, CreateAclsResponse, 3).results[0].error_code == 0
    everything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    answer = box.ask(everything, DescribeAclsResponse, 3)
    assert [(item.resource_type, item.resource_name, len(item.acls)) for item in answer.resources] == [
        (acls.TOPIC, "mine", 1),
        (acls.GROUP, "g", 1),
    ]
    names = map(str, range(acls.MAX_CHANGES_OF_REQUEST + 1))
    too_many = CreateAclsRequest(creations=list(map(creation, names)))
    results = box.ask(too_many, CreateAclsResponse, 3).results
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
    assert len(results) == len(too_many.creations)
    box.user = "bob"
    assert box.ask(everything, DescribeAclsResponse, 3).error_code == 31
    assert committed(box) == -1


def test_operations_are_those_of_kafka_and_only_of_what_was_found(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={"mine": 1})
    assert commit(box, 1, topic="mine") == 0
    groups = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
    found = box.ask(groups, DescribeGroupsResponse, 6).groups
    every = sum(
        1 << each for each in (acls.READ, acls.DELETE, acls.DESCRIBE, acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS)
    )
    assert [group.authorized_operations for group in found] == [every, -(2**31)]
    wanted = [MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=77))]
    request = MetadataRequest(topics=wanted, include_topic_authorized_operations=True)
    (unknown,) = box.ask(request, MetadataResponse, 12).topics
    assert unknown.topic_authorized_operations == -(2**31)


@pytest.mark.parametrize(("endpoint_type", "expected"), [(1, 0), (2, 114), (0, 115), (3, 115)])
def test_a_cluster_is_described_to_those_who_look_for_brokers(
    box: BrokerWithoutSockets, endpoint_type: int, expected: int
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    assert box.ask(request, DescribeClusterResponse, 1).error_code == expected


@pytest.mark.parametrize("version", range(1, 8))
def test_a_refused_group_is_never_answered_as_one_without_offsets(box: BrokerWithoutSockets, version: int) -> None:
    wanted = [OffsetFetchRequestTopic(name="mine", partition_indexes=[0, 1])]
    answer = box.ask(OffsetFetchRequest(group_id="g", topics=wanted), OffsetFetchResponse, version)
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert (answer.error_code, codes) == ((0, [30, 30]) if version == 1 else (30, []))
