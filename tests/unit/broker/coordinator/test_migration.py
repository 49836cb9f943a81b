"""Groups with members that change their protocol: classic to consumer and back (KIP-848, online migration)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.subscription import read_assignment, write_assignment
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kafkaprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkaprod.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafkaprod.protocol.primitives import Writer
from tests.support.broker.broker_requests import TOPIC
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets

SESSION_MS = 10_000
REBALANCE_MS = 30_000
NO_ID_NEEDED = 3
"""A version of JoinGroup in which a new member need not join twice."""


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})


def subscription(owned: Mapping[str, Sequence[int]], topics: Sequence[str] = (TOPIC,)) -> bytes:
    """Version 1, as Java consumers write it."""
    writer = Writer()
    writer.write_int16(1)
    writer.write_int32(len(topics))
    for topic in topics:
        writer.write_string(topic)
    writer.write_nullable_bytes(None)
    return writer.getvalue() + write_assignment(1, owned)[2:-4]


def begin_join(
    box: BrokerWithoutSockets,
    member_id: str = "",
    version: int = NO_ID_NEEDED,
    *,
    owned: Sequence[int] = (),
    protocols: Sequence[str] = ("range",),
    metadata: bytes | None = None,
    **fields: Any,
) -> list[Any]:
    content = subscription({TOPIC: owned} if owned else {}) if metadata is None else metadata
    fields = {"group_id": "g", "protocol_type": "consumer", "session_timeout_ms": SESSION_MS, **fields}
    request = JoinGroupRequest(
        member_id=member_id,
        rebalance_timeout_ms=REBALANCE_MS,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=content) for name in protocols],
        **fields,
    )
    received: list[Any] = box.begin(request, version)
    return received


def join(box: BrokerWithoutSockets, member_id: str = "", version: int = NO_ID_NEEDED, **fields: Any) -> Any:
    (answer,) = begin_join(box, member_id, version, **fields)
    assert isinstance(answer, JoinGroupResponse)
    return answer


def sync(
    box: BrokerWithoutSockets, joined: Any, assignments: Mapping[str, Sequence[int]] | None = None, **fields: Any
) -> Any:
    given = [
        SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(1, {TOPIC: indexes}))
        for member_id, indexes in (assignments or {}).items()
    ]
    request = SyncGroupRequest(
        group_id="g", member_id=joined.member_id, generation_id=joined.generation_id, assignments=given, **fields
    )
    return box.ask(request, SyncGroupResponse, 5)


def share(synced: Any) -> list[int]:
    assert synced.error_code == ErrorCode.NONE
    return sorted(index for indexes in read_assignment(synced.assignment).partitions.values() for index in indexes)


def heartbeat(box: BrokerWithoutSockets, joined: Any, **fields: Any) -> int:
    request = HeartbeatRequest(group_id="g", member_id=joined.member_id, generation_id=joined.generation_id, **fields)
    return box.ask(request, HeartbeatResponse, 4).error_code


def leave(box: BrokerWithoutSockets, member_id: str, instance_id: str | None = None) -> int:
    members = [MemberIdentity(member_id=member_id, group_instance_id=instance_id)]
    answer = box.ask(LeaveGroupRequest(group_id="g", members=members), LeaveGroupResponse, 5)
    return answer.members[0].error_code


def beat(box: BrokerWithoutSockets, member_epoch: int = 0, **fields: Any) -> Any:
    fields = {"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 1000, "topic_partitions": [], **fields}
    request = ConsumerGroupHeartbeatRequest(member_epoch=member_epoch, subscribed_topic_names=[TOPIC], **fields)
    return box.ask(request, ConsumerGroupHeartbeatResponse, 1)


def partitions(answer: Any) -> list[int]:
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return sorted(index for topic in answer.assignment.topic_partitions for index in topic.partitions)


def commit(box: BrokerWithoutSockets, member_id: str, generation_id: int, version: int = 7) -> int:
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])],
    )
    return box.ask(request, OffsetCommitResponse, version).topics[0].partitions[0].error_code


def described(box: BrokerWithoutSockets) -> DescribedGroup:
    return box.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), ConsumerGroupDescribeResponse, 1).groups[0]


def classic_state(box: BrokerWithoutSockets) -> str:
    return box.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 5).groups[0].group_state


def stable_classic_member(box: BrokerWithoutSockets, **fields: Any) -> Any:
    joined = join(box, **fields)
    assert share(sync(box, joined, {joined.member_id: [0, 1]})) == [0, 1]
    return joined


def upgraded(box: BrokerWithoutSockets) -> Any:
    """A group of a classic member and the member "m", which share the partitions; return the former's join."""
    old = stable_classic_member(box)
    beat(box)
    joined = join(box, old.member_id)
    sync(box, joined)
    return joined


def test_group_with_a_live_classic_member_is_upgraded(box: BrokerWithoutSockets) -> None:
    old = stable_classic_member(box)
    first = beat(box)
    assert (first.member_epoch, partitions(first)) == (2, [])
    group = described(box)
    assert (group.group_state, group.group_epoch) == ("Reconciling", 2)
    assert {member.member_id: member.member_type for member in group.members} == {old.member_id: 0, "m": 1}
    assert classic_state(box) == "Dead"

    assert heartbeat(box, old) == ErrorCode.REBALANCE_IN_PROGRESS
    assert sync(box, old).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = join(box, old.member_id)
    assert (joined.generation_id, joined.protocol_name, joined.leader, joined.members) == (2, "range", "", [])
    kept = share(sync(box, joined, protocol_type="consumer", protocol_name="range"))
    got = partitions(beat(box, 2))
    assert (len(kept), sorted(kept + got)) == (1, [0, 1])
    assert heartbeat(box, joined) == ErrorCode.NONE
    assert described(box).group_state == "Stable"


def test_cooperative_member_gives_up_before_another_takes(box: BrokerWithoutSockets) -> None:
    old = stable_classic_member(box)
    beat(box)
    joined = join(box, old.member_id, owned=[0, 1])
    assert joined.generation_id == 1
    kept = share(sync(box, joined))
    assert len(kept) == 1
    assert partitions(beat(box, 2)) == []
    assert heartbeat(box, joined) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = join(box, old.member_id, owned=kept)
    assert (joined.generation_id, share(sync(box, joined))) == (2, kept)
    assert sorted(partitions(beat(box, 2)) + kept) == [0, 1]


def test_empty_classic_group_becomes_a_new_consumer_group(box: BrokerWithoutSockets) -> None:
    old = stable_classic_member(box)
    assert leave(box, old.member_id) == ErrorCode.NONE
    assert beat(box).member_epoch == 1


def test_members_that_wait_for_an_answer_join_again_after_the_upgrade(box: BrokerWithoutSockets) -> None:
    old = stable_classic_member(box)
    waiting = begin_join(box)
    assert waiting == []
    assert beat(box).error_code == ErrorCode.NONE
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert join(box, waiting[0].member_id).error_code == ErrorCode.NONE
    assert join(box, old.member_id).error_code == ErrorCode.NONE
    assert len(described(box).members) == 3


@pytest.mark.parametrize(
    ("policy", "max_size", "fields"),
    [
        ("disabled", 9, {}),
        ("downgrade", 9, {}),
        ("bidirectional", 0, {}),
        ("bidirectional", 9, {"protocol_type": "connect"}),
        ("bidirectional", 9, {"metadata": b"\0"}),
    ],
)
def test_refused_upgrade_leaves_the_classic_group_as_it_is(
    tmp_path: Path, policy: str, max_size: int, fields: dict[str, Any]
) -> None:
    config = ConsumerGroupConfig(migration_policy=policy, max_size=max_size)
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2}, consumer_groups=config)
    old = stable_classic_member(box, **fields)
    answer = beat(box)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message.startswith("Group g is not a consumer group, and cannot become one: ")
    assert (heartbeat(box, old), classic_state(box)) == (ErrorCode.NONE, "Stable")


def test_assignments_with_user_data_are_not_lost_by_an_upgrade(box: BrokerWithoutSockets) -> None:
    old = join(box)
    assignment = write_assignment(1, {TOPIC: [0]})[:-4] + b"\0\0\0\1x"
    given = [SyncGroupRequestAssignment(member_id=old.member_id, assignment=assignment)]
    request = SyncGroupRequest(group_id="g", member_id=old.member_id, generation_id=1, assignments=given)
    assert box.ask(request, SyncGroupResponse, 5).error_code == ErrorCode.NONE
    assert "custom assignor" in beat(box).error_message
    assert heartbeat(box, old) == ErrorCode.NONE


def test_disk_that_refuses_the_upgrade_leaves_the_classic_group(
    box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = stable_classic_member(box)

    def refuse(*_: Any) -> None:
        raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(box.broker.offsets, "write_group_records", refuse)
        assert beat(box).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (heartbeat(box, old), classic_state(box)) == (ErrorCode.NONE, "Stable")
    assert beat(box).error_code == ErrorCode.NONE


def test_group_is_downgraded_when_its_last_consumer_member_leaves(box: BrokerWithoutSockets) -> None:
    old = upgraded(box)
    assert beat(box, -1).error_code == ErrorCode.NONE
    assert (classic_state(box), described(box).error_code) == ("PreparingRebalance", ErrorCode.GROUP_ID_NOT_FOUND)
    assert heartbeat(box, old) == ErrorCode.ILLEGAL_GENERATION  # it joins again
    joined = join(box, old.member_id)
    assert (joined.leader, [member.member_id for member in joined.members]) == (old.member_id, [old.member_id])
    assert joined.generation_id > old.generation_id
    assert share(sync(box, joined, {joined.member_id: [0, 1]})) == [0, 1]
    assert (classic_state(box), heartbeat(box, joined)) == ("Stable", ErrorCode.NONE)


def test_group_is_downgraded_when_the_session_of_the_last_consumer_member_ends(box: BrokerWithoutSockets) -> None:
    old = upgraded(box)
    for _ in range(9):
        box.advance(5_000)
        last = heartbeat(box, old)
    assert last != ErrorCode.NONE
    assert classic_state(box) == "PreparingRebalance"
    assert join(box, old.member_id).error_code == ErrorCode.NONE


def test_group_keeps_the_consumer_protocol_where_the_policy_forbids_a_downgrade(tmp_path: Path) -> None:
    config = ConsumerGroupConfig(migration_policy="upgrade")
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2}, consumer_groups=config)
    old = upgraded(box)
    beat(box, -1)
    assert [member.member_id for member in described(box).members] == [old.member_id]
    assert heartbeat(box, old) == ErrorCode.REBALANCE_IN_PROGRESS
    assert share(sync(box, join(box, old.member_id))) == [0, 1]


def test_static_member_that_returns_to_the_classic_protocol_downgrades_without_a_rebalance(
    box: BrokerWithoutSockets,
) -> None:
    had = partitions(beat(box, instance_id="i"))
    joined = join(box, version=5, group_instance_id="i")
    assert (joined.error_code, classic_state(box)) == (ErrorCode.NONE, "Stable")
    assert share(sync(box, joined, group_instance_id="i")) == had == [0, 1]
    assert heartbeat(box, joined, group_instance_id="i") == ErrorCode.NONE


def test_static_member_changes_to_the_consumer_protocol(box: BrokerWithoutSockets) -> None:
    old = stable_classic_member(box, version=5, group_instance_id="i")
    assert partitions(beat(box, instance_id="i")) == [0, 1]
    assert heartbeat(box, old, group_instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert join(box, old.member_id, version=5, group_instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert [member.member_id for member in described(box).members] == ["m"]


def test_classic_members_join_a_consumer_group(box: BrokerWithoutSockets) -> None:
    beat(box)
    first = join(box, version=4)
    assert (first.error_code, bool(first.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, True)
    assert join(box, protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join(box, protocols=[]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join(box, metadata=b"\0").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join(box, session_timeout_ms=1).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert len(described(box).members) == 1
    joined = join(box, first.member_id, version=4)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 2)
    assert join(box, protocols=["sticky"]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(box, joined, protocol_name="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(box, joined, protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert share(sync(box, joined)) == []  # the other member must give up first
    assert heartbeat(box, joined) == ErrorCode.NONE
    kept = partitions(beat(box, 1, topic_partitions=None))
    owned = [{"topic_id": box.broker.topics.get(TOPIC).topic_id, "partitions": kept}]  # type: ignore[union-attr]
    topics = [type(beat(box, 1).assignment.topic_partitions[0])(**topic) for topic in owned]
    assert beat(box, 1, topic_partitions=topics).error_code in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
    assert heartbeat(box, joined) == ErrorCode.REBALANCE_IN_PROGRESS
    assert sorted(share(sync(box, join(box, joined.member_id))) + kept) == [0, 1]


def test_requests_of_the_wrong_member_or_generation_are_refused(box: BrokerWithoutSockets) -> None:
    joined = upgraded(box)
    stale = join(box, joined.member_id)
    stale.generation_id -= 1
    assert heartbeat(box, stale) == sync(box, stale).error_code == ErrorCode.ILLEGAL_GENERATION
    assert commit(box, joined.member_id, stale.generation_id) == ErrorCode.ILLEGAL_GENERATION
    assert commit(box, joined.member_id, joined.generation_id) == ErrorCode.NONE
    assert commit(box, "m", 2) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(box, "m", 2, version=9) == ErrorCode.NONE
    joined.member_id = "m"
    assert heartbeat(box, joined) == sync(box, joined).error_code == leave(box, "m") == ErrorCode.UNKNOWN_MEMBER_ID
    joined.member_id = "nobody"
    assert heartbeat(box, joined) == sync(box, joined).error_code == leave(box, "x") == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_member_leaves_a_consumer_group(box: BrokerWithoutSockets) -> None:
    joined = upgraded(box)
    assert leave(box, joined.member_id) == ErrorCode.NONE
    assert partitions(beat(box, 2)) == [0, 1]
    assert [member.member_id for member in described(box).members] == ["m"]


@pytest.mark.parametrize("how", ["session", "join", "sync"])
def test_classic_member_that_does_not_come_in_time_is_removed(box: BrokerWithoutSockets, how: str) -> None:
    joined = upgraded(box)
    if how == "join":
        beat(box, member_id="n")
        assert heartbeat(box, joined) == ErrorCode.REBALANCE_IN_PROGRESS
    elif how == "sync":
        joined = join(box, joined.member_id)
    waited_ms = 0
    while joined.member_id in {member.member_id for member in described(box).members}:
        box.advance(1_000)
        waited_ms += 1_000
        beat(box, 2)
        if how != "session":
            heartbeat(box, joined)
    assert waited_ms == (SESSION_MS if how == "session" else REBALANCE_MS)


def test_mixed_group_outlives_a_restart(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})
    joined = upgraded(box)
    before = described(box)
    box.broker.close()
    box = BrokerWithoutSockets(tmp_path)
    assert described(box) == before
    assert heartbeat(box, joined) == ErrorCode.NONE
    assert len(share(sync(box, joined))) == 1
    beat(box, -1)
    assert classic_state(box) == "PreparingRebalance"
    box.broker.close()
    assert BrokerWithoutSockets(tmp_path).broker.groups.get_consumer("g") is None
