"""Who has no right to a resource can neither change it nor learn of it, however a request names it.

Every announced version of every API is sent with every combination of its naming fields: names and ids that are
missing, that of a resource the user may use, of a secret one, of one that does not exist. The same requests go to a
broker that never had the secret resources: its answers must be the same, and nothing secret may have changed.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import CloseConnectionError
from kafkaprod.broker.cluster import acls
from kafkaprod.broker.cluster.acls import Acl
from kafkaprod.broker.server.router import HANDLERS, PEER_APIS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.field_types import ArrayType, FieldType, FixedType, ScalarType, StructType
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
from kafkaprod.protocol.schema import Request, Response, Struct
from tests.support.broker.broker_requests import produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.protocol_samples import kind_of

MINE, SECRET, FRESH = "mine", "secret", "fresh"
STRANGE_ID = uuid.UUID(int=77)
MARKS = {MINE: b"\xdd" * 16, SECRET: b"\xee" * 16}
RESOURCE_TYPES = (acls.TOPIC, acls.GROUP, acls.CLUSTER, acls.TRANSACTIONAL_ID, 32)
MOST_COMBINATIONS = 120
TIMES = {"timeout_ms", "max_wait_ms", "timeout", "transaction_timeout_ms", "session_timeout_ms", "rebalance_timeout_ms"}


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


def requests(api: ApiKey, version: int, ids: dict[str, uuid.UUID]) -> Iterator[Request]:
    """Yield requests with each combination of values in the fields that name something."""
    fields = sorted(set(_naming_fields(REQUESTS[api], version)))
    choices = [_values(name, kind, ids) for name, kind in fields]
    # Too many combinations are thinned out evenly.
    total = 1
    for values in choices:
        total *= len(values)
    step = max(1, total // MOST_COMBINATIONS)
    if step > 1 and step % 2 == 0:
        step += 1
    for combination in itertools.islice(itertools.product(*choices), 0, None, step):
        given = {name: value for (name, _), value in zip(fields, combination, strict=True)}
        for resource_type in RESOURCE_TYPES if _has_resource_type(REQUESTS[api], version) else (0,):
            for shape in (1, 2, 0, None):
                yield _build(REQUESTS[api], version, given, resource_type, shape)


def _fields(struct_class: type[Struct], version: int) -> Iterator[tuple[str, FieldType]]:
    for item in struct_class.fields:
        if not item.is_in(version):
            continue
        kind: Any = item.type
        while isinstance(kind, ArrayType):
            kind = kind.element
        if isinstance(kind, StructType):
            kind = kind.struct_class
        if isinstance(kind, type):
            yield from _fields(kind, version)
        else:
            yield item.name, kind


def _naming_fields(struct_class: type[Struct], version: int) -> Iterator[tuple[str, str]]:
    for name, kind in _fields(struct_class, version):
        if isinstance(kind, ScalarType) and kind_of(kind) in ("string", "uuid"):
            yield name, kind_of(kind) + ("?" if kind.is_nullable(version) else "")


def _has_resource_type(struct_class: type[Struct], version: int) -> bool:
    return any(name.startswith("resource_type") for name, _ in _fields(struct_class, version))


def _values(name: str, kind: str, ids: dict[str, uuid.UUID]) -> list[Any]:
    if kind.startswith("uuid"):
        return [None, ids[SECRET], uuid.UUID(bytes=MARKS[MINE]), STRANGE_ID]
    is_resource = any(word in name for word in ("name", "topic", "group", "id", "user", "entity", "pattern"))
    if not is_resource or name in ("member_id", "client_id", "rack_id", "group_instance_id", "protocol_name"):
        return [""]
    missing = None if kind.endswith("?") else ""
    return [SECRET, missing, MINE, FRESH]


def _build(struct_class: type[Struct], version: int, given: dict[str, Any], resource_type: int, shape: Any) -> Any:
    """Make a struct: arrays have `shape` elements, the first of them names what is `mine` if there are two."""

    def value_of(name: str, kind: Any, is_first_of_two: bool) -> Any:
        if isinstance(kind, ArrayType):
            if shape is None and kind.is_nullable(version):
                return None
            count = shape or 0
            return [value_of(name, kind.element, count == 2 and index == 0) for index in range(count)]
        if isinstance(kind, StructType):
            return value_of(name, kind.struct_class, is_first_of_two)
        if isinstance(kind, type):
            return struct(kind, is_first_of_two)
        if isinstance(kind, FixedType):
            return number_of(name, kind)
        if kind_of(kind) == "string":
            value = given.get(name, "")
            return MINE if is_first_of_two and value == SECRET else value
        if kind_of(kind) == "uuid":
            return given.get(name)
        return make_batch() if kind_of(kind) == "records" else b""

    def number_of(name: str, kind: FixedType) -> Any:
        if kind.format == "?":
            return True
        if name.startswith("resource_type"):
            return resource_type
        return {"count": 5, "num_partitions": 1, "replication_factor": 1, "acks": -1}.get(name, int(name in TIMES))

    def struct(kind: type[Struct], is_first_of_two: bool) -> Any:
        values = {
            item.name: value_of(item.name, item.type, is_first_of_two) for item in kind.fields if item.is_in(version)
        }
        return kind(**values)

    return struct(struct_class, is_first_of_two=False)


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
        for request in requests(api, version, there.ids):
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
