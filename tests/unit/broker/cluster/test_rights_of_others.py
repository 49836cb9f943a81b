"""Who has no right to a resource can neither change it nor learn of it, however a request names it.

Every announced version of every API is sent with every combination of its naming fields: names and ids that are
missing, that of a resource the user may use, of a secret one, of one that does not exist. The same requests go to a
broker that never had the secret resources: its answers must be the same, and nothing secret may have changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import CloseConnectionError
from kafkaprod.broker.server.router import HANDLERS, PEER_APIS
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kafkaprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkaprod.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kafkaprod.protocol.schema import Request, Response
from tests.support.broker.broker_requests import produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.naming_requests import MARKS, MINE, SECRET, requests


def commit_offset(box: BrokerWithoutSockets, *, group: str, topic: str) -> None:
    """Commit an offset of the topic's only partition."""
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    assert box.ask(request, OffsetCommitResponse, 7).topics[0].partitions[0].error_code == 0


class World:
    """A broker with what `ann` may use, and with or without what only root may."""

    def __init__(self, data_dir: Path, *, has_secrets: bool) -> None:
        names = [MINE, SECRET] if has_secrets else [MINE]
        self.box = BrokerWithoutSockets(
            data_dir,
            topics=dict.fromkeys(names, 1),
            super_users="User:root",
            allow_everyone_if_no_acl_found=False,
        )
        for resource_type in (acls.TOPIC, acls.GROUP, acls.TRANSACTIONAL_ID):
            entry = Acl(resource_type, MINE, acls.LITERAL, "User:ann", "*", acls.ALL, acls.ALLOW)
            self.box.broker.acls.add([entry])
        self.box.user = "root"
        for name in names:
            assert produce(self.box, make_batch(), topic=name).error_code == 0
            commit_offset(self.box, group=name, topic=name)
        for name in (MINE, SECRET) if has_secrets else (MINE, "another"):  # as many producer ids in both worlds
            begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            assert self.box.ask(begin, InitProducerIdResponse, 4).error_code == 0
        if has_secrets:  # what is ann's has to do with what is not
            commit_offset(self.box, group=MINE, topic=SECRET)
        self.ids = {name: self.box.broker.topics.get(name).topic_id for name in names}  # type: ignore[union-attr]

    def answer(self, raw: bytes, request: Request, version: int, user: str) -> bytes:
        """Return what the user is answered, with marks in place of what is different in each world."""
        self.box.user = user
        raw = raw.replace(MARKS[MINE], self.ids[MINE].bytes)
        received = REQUESTS[request.api].decode(bytearray(raw), version)
        try:
            outcomes: list[Any] = self.box.begin(received, version)
        except CloseConnectionError:
            return b"closed"
        parts = []
        for outcome in outcomes:
            response = outcome.response if isinstance(outcome, FileResponse) else outcome
            parts.append(bytes(response.encode(version)) if isinstance(response, Response) else str(response).encode())
        text = b"".join(parts).replace(self.box.broker.cluster_id.encode(), b"cluster")
        for name, topic_id in self.ids.items():
            text = text.replace(topic_id.bytes, MARKS[name])
        return text

    def secrets(self) -> object:
        """Return what must not change."""
        broker = self.box.broker
        topic = broker.topics.get(SECRET)
        assert topic is not None
        (partition,) = topic.partitions
        state = broker.transactions.states[SECRET]
        return (
            topic.topic_id,
            partition.log.log_start_offset,
            partition.log.log_end_offset,
            dict(broker.offsets.table.of_group(SECRET)),
            (state.state, state.producer_id, state.epoch, set(state.partitions)),
            sorted(broker.acls.find(acls.AclFilter(acls.ANY, None, acls.ANY, None, None, acls.ANY, acls.ANY))),
            sorted(topic.name for topic in broker.topics.all() if not topic.is_internal and topic.name != MINE),
        )


@pytest.fixture
def worlds(tmp_path: Path) -> tuple[World, World]:
    """The broker with secret resources, and the one without."""
    return World(tmp_path / "with", has_secrets=True), World(tmp_path / "without", has_secrets=False)


TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}  # they name nothing
APIS = sorted(
    set(HANDLERS) - PEER_APIS - {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, *TELEMETRY}
)


@pytest.mark.parametrize("user", ["nobody", "ann"])
@pytest.mark.parametrize("api", APIS)
def test_nobody_changes_or_learns_what_they_have_no_right_to(
    worlds: tuple[World, World], api: ApiKey, user: str
) -> None:
    there, _ = worlds
    before = there.secrets()
    low, high = REQUESTS[api].versions
    for version in range(low, min(high, HANDLERS[api].MAX_VERSION) + 1):
        for request in requests(api, version, there.ids[SECRET]):
            raw = bytes(request.encode(version))
            answers = [world.answer(raw, request, version, user) for world in worlds]
            assert there.secrets() == before, (version, request)
            if there.ids[SECRET].bytes in raw:  # whoever has the id may learn that it exists, as with Kafka
                assert SECRET.encode() not in answers[0] or SECRET.encode() in raw, (version, request)
            else:
                assert answers[0] == answers[1], (version, request)


def test_root_changes_and_sees_what_others_do_not(worlds: tuple[World, World]) -> None:
    there, not_there = worlds
    every = MetadataRequest(topics=None)
    raw = bytes(every.encode(1))
    assert SECRET.encode() in there.answer(raw, every, 1, "root")
    assert SECRET.encode() not in there.answer(raw, every, 1, "ann")
    assert SECRET.encode() not in not_there.answer(raw, every, 1, "root")
    before = there.secrets()
    delete = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=SECRET, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])]
    )
    there.answer(bytes(delete.encode(1)), delete, 1, "ann")
    assert there.secrets() == before
    there.answer(bytes(delete.encode(1)), delete, 1, "root")
    assert there.secrets() != before


def test_a_transaction_of_ones_own_hides_topics_that_one_may_not_describe(worlds: tuple[World, World]) -> None:
    there, _ = worlds
    box = there.box
    box.user = "root"
    producer = box.ask(
        InitProducerIdRequest(transactional_id=MINE, transaction_timeout_ms=1000), InitProducerIdResponse, 4
    )
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=MINE,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (MINE, SECRET)],
    )
    box.ask(add, AddPartitionsToTxnResponse, 3)
    describe = DescribeTransactionsRequest(transactional_ids=[MINE])
    seen = {}
    for user in ("root", "ann"):
        box.user = user
        (state,) = box.ask(describe, DescribeTransactionsResponse, 0).transaction_states
        seen[user] = [topic.topic for topic in state.topics]
    assert seen == {"root": [MINE, SECRET], "ann": [MINE]}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_group_that_is_named_twice_hides_topics_in_both_answers(worlds: tuple[World, World], version: int) -> None:
    there, _ = worlds
    there.box.user = "ann"
    some = OffsetFetchRequestTopics(name=SECRET, topic_id=there.ids[SECRET], partition_indexes=[0])
    groups = [OffsetFetchRequestGroup(group_id=MINE, topics=topics) for topics in (None, [some])]
    for ordered in (groups, groups[::-1]):
        answer = there.box.ask(OffsetFetchRequest(groups=ordered), OffsetFetchResponse, version)
        offsets = [
            (topic.name, partition.committed_offset, partition.error_code)
            for group in answer.groups
            for topic in group.topics
            for partition in topic.partitions
        ]
        assert not [offset for name, offset, _ in offsets if name == SECRET and offset != -1]
        named = [code for name, _, code in offsets if name == SECRET or code]
        assert named in ([], [ErrorCode.TOPIC_AUTHORIZATION_FAILED], [29, 29])


def test_a_topic_is_deleted_by_its_name_or_by_its_id(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={"a": 1, "b": 1})
    b_id = box.broker.topics.get("b").topic_id  # type: ignore[union-attr]
    wanted = [
        DeleteTopicState(name="a", topic_id=b_id),
        DeleteTopicState(name=None, topic_id=None),
        DeleteTopicState(name="a"),
        DeleteTopicState(name="a"),
        DeleteTopicState(name=None, topic_id=b_id),
    ]
    answer = box.ask(DeleteTopicsRequest(topics=wanted), DeleteTopicsResponse, 6)
    codes = [(result.name, result.error_code) for result in answer.responses]
    assert codes == [("a", 42), (None, 42), ("a", 42), ("b", 0)]
    assert [topic.name for topic in box.broker.topics.all()] == ["a"]
