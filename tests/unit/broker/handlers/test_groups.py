"""What the handlers of groups and committed offsets answer."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkaprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kafkaprod.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkaprod.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
from kafkaprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.broker.broker_requests import TOPIC, commit, committed
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})


def join(box: BrokerWithoutSockets, member_id: str = "", version: int = 3) -> list[Any]:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"topics")]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, member_id=member_id, protocol_type="consumer", protocols=protocols
    )
    return box.begin(request, version)


def stable_member(box: BrokerWithoutSockets) -> JoinGroupResponse:
    (joined,) = join(box)
    assert isinstance(joined, JoinGroupResponse)
    shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")]
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=shares)
    assert box.ask(request, SyncGroupResponse, 3).assignment == b"share"
    return joined


def test_member_joins_syncs_beats_commits_and_leaves(box: BrokerWithoutSockets) -> None:
    member = stable_member(box)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert box.ask(beat, HeartbeatResponse, 3).error_code == ErrorCode.NONE
    assert commit(box, 7, member) == ErrorCode.NONE
    assert (committed(box), committed(box, 1)) == (7, -1)
    leave = LeaveGroupRequest(group_id="g", member_id=member.member_id)
    assert box.ask(leave, LeaveGroupResponse, 2).error_code == ErrorCode.NONE
    assert box.ask(beat, HeartbeatResponse, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_several_members_leave_in_one_request(box: BrokerWithoutSockets) -> None:
    member = stable_member(box)
    leave = LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(member_id=member.member_id), MemberIdentity(member_id="nobody")]
    )
    answer = box.ask(leave, LeaveGroupResponse, 4)
    assert [entry.error_code for entry in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_first_join_since_version_4_gets_an_id_only(box: BrokerWithoutSockets) -> None:
    (answer,) = join(box, version=4)
    assert (answer.error_code, answer.member_id.startswith("client-")) == (ErrorCode.MEMBER_ID_REQUIRED, True)
    assert answer.protocol_name == ""
    (answer,) = join(box, version=7)
    assert answer.protocol_name is None


def test_session_ends_by_time(box: BrokerWithoutSockets) -> None:
    member = stable_member(box)
    box.advance(10_000)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert box.ask(beat, HeartbeatResponse, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"note": "x" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"note": "x" * 4096}, ErrorCode.NONE),
    ],
)
def test_commit_is_checked_partition_by_partition(
    box: BrokerWithoutSockets, change: dict[str, Any], expected: ErrorCode
) -> None:
    assert commit(box, 7, **change) == expected


@pytest.mark.parametrize("metadata", ["x" * 4096, "\u00e9" * 2048])
def test_offsets_of_a_request_are_too_large_together(box: BrokerWithoutSockets, metadata: str) -> None:
    """As in Apache Kafka up to 3.9, where a batch has a limit of bytes."""

    def commit_many(count: int) -> set[int]:
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=metadata)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[offset] * count)
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        (answered,) = box.ask(request, OffsetCommitResponse, 8).topics
        return {partition.error_code for partition in answered.partitions}

    assert commit_many(256) == {ErrorCode.NONE}
    assert commit_many(257) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def test_stranger_cannot_commit_for_a_group_with_members(box: BrokerWithoutSockets) -> None:
    member = stable_member(box)
    assert commit(box, 7) == ErrorCode.UNKNOWN_MEMBER_ID
    member.generation_id = 9
    assert commit(box, 7, member) == ErrorCode.ILLEGAL_GENERATION
    assert committed(box) == -1


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})
    commit(box, 7)
    box.broker.close()
    assert committed(BrokerWithoutSockets(tmp_path)) == 7


def test_offset_fetch_of_several_groups_and_of_all_topics(box: BrokerWithoutSockets) -> None:
    commit(box, 7)
    commit(box, 8, partition=1)
    assert box.ask(OffsetFetchRequest(group_id="g", topics=None), OffsetFetchResponse, 2).topics[0].name == TOPIC
    some = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[1, 5])]
    )
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    nobody = OffsetFetchRequestGroup(group_id="nobody", topics=None)
    answer = box.ask(OffsetFetchRequest(groups=[some, everything, nobody]), OffsetFetchResponse, 8)
    found = [
        [(entry.partition_index, entry.committed_offset) for topic in group.topics for entry in topic.partitions]
        for group in answer.groups
    ]
    assert found == [[(1, 8), (5, -1)], [(0, 7), (1, 8)], []]


def test_what_is_named_again_and_again_is_answered_once(box: BrokerWithoutSockets) -> None:
    commit(box, 7)
    some = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 0])] * 2
    )
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    groups = box.ask(OffsetFetchRequest(groups=[some, everything, everything]), OffsetFetchResponse, 8).groups
    assert [[len(topic.partitions) for topic in group.topics] for group in groups] == [[1], [1]]
    assert len(box.ask(DescribeGroupsRequest(groups=["g", "g"]), DescribeGroupsResponse, 5).groups) == 1
    resource = DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    described = box.ask(DescribeConfigsRequest(resources=[resource] * 3), DescribeConfigsResponse, 4)
    assert len(described.results) == 1
    producers = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[1, 1])] * 2)
    (topic,) = box.ask(producers, DescribeProducersResponse, 0).topics
    assert len(topic.partitions) == 1
    transactions = DescribeTransactionsRequest(transactional_ids=["t", "t"])
    assert len(box.ask(transactions, DescribeTransactionsResponse, 0).transaction_states) == 1


def test_groups_are_described_listed_and_deleted(box: BrokerWithoutSockets) -> None:
    member = stable_member(box)
    commit(box, 7, member)

    def described(group_id: str) -> Any:
        return box.ask(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse, 5).groups[0]

    group = described("g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (shown,) = group.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member.member_id, "client", "/127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (b"topics", b"share")
    assert (described("nobody").group_state, described("nobody").error_code) == ("Dead", 0)

    def delete(group_id: str) -> int:
        return box.ask(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse, 2).results[0].error_code

    assert delete("nobody") == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete("g") == ErrorCode.NON_EMPTY_GROUP
    box.advance(10_000)
    listed = box.ask(ListGroupsRequest(states_filter=["Empty"]), ListGroupsResponse, 4).groups
    assert [(entry.group_id, entry.group_state) for entry in listed] == [("g", "Empty")]
    assert delete("g") == ErrorCode.NONE
    assert committed(box) == -1
    assert box.ask(ListGroupsRequest(), ListGroupsResponse, 2).groups == []


def test_group_that_was_left_can_be_described_and_deleted(box: BrokerWithoutSockets) -> None:
    member = stable_member(box)
    box.ask(LeaveGroupRequest(group_id="g", member_id=member.member_id), LeaveGroupResponse, 2)
    described = box.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 5).groups[0]
    assert described.group_state == "Empty"
    deleted = box.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse, 2).results[0]
    assert deleted.error_code == ErrorCode.NONE


def test_join_with_too_much_metadata_is_refused(box: BrokerWithoutSockets) -> None:
    half = 512 * 1024
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"m" * (half + 1)) for name in ("range", "sticky")]
    request = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)
    assert box.ask(request, JoinGroupResponse, 3).error_code == ErrorCode.INVALID_REQUEST
    protocols[0].metadata = protocols[1].metadata = b"m" * half
    assert box.ask(request, JoinGroupResponse, 3).error_code == ErrorCode.NONE


def test_a_commit_checks_topics_before_the_member(box: BrokerWithoutSockets) -> None:
    wanted = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    topics = [OffsetCommitRequestTopic(name=name, partitions=wanted) for name in ("missing", TOPIC)]
    request = OffsetCommitRequest(group_id="g", member_id="m", generation_id_or_member_epoch=3, topics=topics)
    answer = box.ask(request, OffsetCommitResponse, 9)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.ILLEGAL_GENERATION,
    ]
    request.topics = topics[:1]
    answer = box.ask(request, OffsetCommitResponse, 9)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_offsets_are_committed_and_fetched_by_topic_id(box: BrokerWithoutSockets) -> None:
    topic_id, unknown_id = box.broker.topics.get(TOPIC).topic_id, uuid.uuid4()  # type: ignore[union-attr]
    wanted = [OffsetCommitRequestPartition(partition_index=1, committed_offset=7)]
    topics = [OffsetCommitRequestTopic(topic_id=key, partitions=wanted) for key in (topic_id, unknown_id)]
    answer = box.ask(OffsetCommitRequest(group_id="g", topics=topics), OffsetCommitResponse, 10)
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics] == [
        (topic_id, 0),
        (unknown_id, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    named = [OffsetFetchRequestTopics(topic_id=key, partition_indexes=[1]) for key in (unknown_id, topic_id)]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=named), OffsetFetchRequestGroup(group_id="g", topics=None)]
    fetched = box.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 10)
    found = [
        [
            (topic.topic_id, item.committed_offset, item.error_code)
            for topic in group.topics
            for item in topic.partitions
        ]
        for group in fetched.groups
    ]
    assert found == [[(topic_id, 7, 0), (unknown_id, -1, ErrorCode.UNKNOWN_TOPIC_ID)], [(topic_id, 7, 0)]]
