"""The classic group protocol as a table of situations; time is turned by hand, answers are collected."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from kafkaprod.broker.coordinator.group import TRANSITIONS, Group, GroupState
from kafkaprod.broker.coordinator.member import GroupConfig, JoinAttempt, JoinResult, SyncAttempt, SyncResult
from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
SUBSCRIPTION = b"orders"


class Room:
    """A group, a clock, and the answers its members got."""

    def __init__(self, *, delay_ms: int = 0, max_size: int = 100) -> None:
        numbers = count(1)
        config = GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.group = Group("g", config, new_uuid=lambda: next(numbers))
        self.now_ms = 0

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        known_id: bool = False,
        skip: bool = False,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> list[JoinResult]:
        """Send a join; the list holds its answer once there is one."""
        answer: list[JoinResult] = []
        attempt = JoinAttempt(
            member_id,
            instance,
            "client",
            "127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            {"range": SUBSCRIPTION} if protocols is None else protocols,
            known_id,
            skip,
        )
        self.group.join(attempt, self.now_ms, answer.append)
        return answer

    def sync(
        self, member: JoinResult, assignments: dict[str, bytes] | None = None, *, generation: int | None = None
    ) -> list[SyncResult]:
        """Send a sync; the list holds its answer once there is one."""
        answer: list[SyncResult] = []
        attempt = SyncAttempt(
            member.member_id,
            None,
            member.generation_id if generation is None else generation,
            member.protocol_type,
            member.protocol_name,
            assignments or {},
        )
        self.group.sync(attempt, self.now_ms, answer.append)
        return answer

    def heartbeat(self, member: JoinResult) -> ErrorCode:
        return self.group.heartbeat(member.member_id, None, member.generation_id, self.now_ms)

    def advance(self, ms: int) -> None:
        """Let time pass, calling the group whenever it asked for it."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.group.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(deadline_ms, self.now_ms)
            self.group.on_time(self.now_ms)
        self.now_ms = end_ms

    def stable(self, size: int) -> list[JoinResult]:
        """Bring the group to a stable generation of `size` members; the leader comes first."""
        ids: list[str] = []
        for _ in range(size):
            newcomer = self.join()
            answers = [self.join(member_id) for member_id in ids]
            members = [answer[-1] for answer in (*answers, newcomer)]
            ids = [member.member_id for member in members]
            self.sync_all(members)
        return sorted(members, key=lambda member: member.member_id != member.leader)

    def sync_all(self, members: list[JoinResult]) -> list[SyncResult]:
        leader = next(member for member in members if member.member_id == member.leader)
        shares = {member.member_id: member.member_id.encode() for member in members}
        answers = [self.sync(member, shares if member is leader else None) for member in members]
        return [answer[0] for answer in answers]


def only(answers: list[JoinResult]) -> JoinResult:
    assert len(answers) == 1
    return answers[0]


def test_first_member_becomes_leader_and_sees_itself() -> None:
    joined = only(Room().join())
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, joined.member_id)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    assert joined.protocol_name == "range"


def test_second_member_waits_until_the_first_has_joined_again() -> None:
    room = Room()
    first = room.stable(1)[0]
    second = room.join()
    assert second == []
    assert room.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = only(room.join(first.member_id))
    joined = only(second)
    assert again.generation_id == joined.generation_id == 2
    assert len(again.members) == 2
    assert joined.members == ()


def test_sync_of_followers_is_held_until_the_leader_assigns() -> None:
    room = Room()
    leader = room.stable(1)[0]
    follower_join = room.join()
    leader = only(room.join(leader.member_id))
    follower = only(follower_join)
    held = room.sync(follower)
    assert held == []
    own = room.sync(leader, {leader.member_id: b"L", follower.member_id: b"F"})
    assert (own[0].assignment, held[0].assignment) == (b"L", b"F")
    assert room.group.state is GroupState.STABLE
    assert room.sync(follower)[0].assignment == b"F"


def test_member_the_leader_forgot_gets_an_empty_assignment() -> None:
    room = Room()
    joined = only(room.join())
    assert room.sync(joined, {"somebody else": b"x"})[0] == SyncResult(ErrorCode.NONE, "consumer", "range", b"")


def test_first_join_with_known_ids_is_answered_with_an_id_only() -> None:
    room = Room()
    refused = only(room.join(known_id=True))
    assert (refused.error_code, refused.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    assert not room.group.members
    assert only(room.join("client-1", known_id=True)).error_code is ErrorCode.NONE


def test_id_that_was_given_out_expires_with_the_session_timeout() -> None:
    room = Room()
    room.join(known_id=True)
    room.advance(SESSION_MS)
    assert room.group.next_deadline_ms() is None
    assert only(room.join("client-1")).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_phase_waits_for_ids_that_were_given_out() -> None:
    room = Room()
    first = room.stable(1)[0]
    room.join(known_id=True)
    second = room.join()
    room.join(first.member_id)
    assert second == []
    room.advance(SESSION_MS)
    assert len(second) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"sticky": b""}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_is_refused_and_changes_nothing(change: dict[str, object], expected: ErrorCode) -> None:
    room = Room()
    room.stable(1)
    assert only(room.join(**change)).error_code is expected  # type: ignore[arg-type]
    assert (room.group.state, room.group.generation_id) == (GroupState.STABLE, 1)


def test_group_takes_no_more_members_than_its_maximum() -> None:
    room = Room(max_size=1)
    room.stable(1)
    assert only(room.join()).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_protocol_is_the_one_all_know_and_most_prefer() -> None:
    room = Room(delay_ms=100)
    answers = [
        room.join(protocols={"a": b"1", "b": b"1", "c": b"1"}),
        room.join(protocols={"b": b"2", "a": b"2"}),
        room.join(protocols={"b": b"3", "a": b"3"}),
    ]
    room.advance(10_000)
    assert {only(answer).protocol_name for answer in answers} == {"b"}
    assert [member.metadata for member in only(answers[0]).members] == [b"1", b"2", b"3"]


def test_initial_delay_is_extended_while_members_arrive_up_to_the_rebalance_timeout() -> None:
    room = Room(delay_ms=3_000)
    answers = [room.join(rebalance_ms=7_000)]
    for _ in range(2):
        room.advance(2_000)
        answers.append(room.join(rebalance_ms=7_000))
    room.advance(2_999)
    assert not any(answers)
    room.advance(1)
    assert {only(answer).generation_id for answer in answers} == {1}


def test_empty_group_completes_after_the_initial_delay_if_nobody_else_comes() -> None:
    room = Room(delay_ms=3_000)
    answer = room.join()
    room.advance(2_999)
    assert answer == []
    room.advance(1)
    assert only(answer).error_code is ErrorCode.NONE


def test_member_that_does_not_join_again_is_removed_at_the_rebalance_timeout() -> None:
    room = Room()
    first = room.stable(1)[0]
    second = room.join(session_ms=1_800_000)
    for _ in range(6):
        room.advance(9_999)
        room.heartbeat(first)
    assert second == []
    room.advance(REBALANCE_MS - 6 * 9_999)  # the session of the first one goes on
    assert list(room.group.members) == [only(second).member_id]
    assert only(second).leader == only(second).member_id
    assert room.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_never_syncs_is_removed_and_the_others_join_again() -> None:
    room = Room()
    first = room.stable(1)[0]
    second_join = room.join()
    first = only(room.join(first.member_id))
    second = only(second_join)
    room.sync(first, {})
    for _ in range(7):
        room.advance(9_000)
        room.heartbeat(first)
        room.heartbeat(second)
    assert second.member_id not in room.group.members
    assert room.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_without_heartbeats_is_removed_and_the_rest_rebalances() -> None:
    room = Room()
    first, second = room.stable(2)
    room.advance(SESSION_MS - 1)
    assert room.heartbeat(first) is ErrorCode.NONE
    room.advance(1)
    assert list(room.group.members) == [first.member_id]
    assert room.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_last_member_to_expire_leaves_an_empty_group() -> None:
    room = Room()
    room.stable(1)
    room.advance(SESSION_MS)
    assert (room.group.state, room.group.generation_id) == (GroupState.EMPTY, 2)
    assert (room.group.protocol_type, room.group.leader_id) == ("consumer", None)
    assert room.group.subscribed_topics() == frozenset()
    assert room.group.next_deadline_ms() is None


def test_an_empty_group_keeps_its_type_and_takes_members_of_another() -> None:
    room = Room()
    room.join(protocol_type="connect")
    assert room.group.subscribed_topics() is None
    room.advance(SESSION_MS + REBALANCE_MS)
    assert (room.group.state, room.group.protocol_type) == (GroupState.EMPTY, "connect")
    assert room.group.subscribed_topics() == frozenset()
    (answer,) = room.join(protocol_type="consumer")
    assert (answer.error_code, room.group.protocol_type) == (ErrorCode.NONE, "consumer")


def test_waiting_for_an_answer_counts_as_a_sign_of_life() -> None:
    room = Room()
    first = room.stable(1)[0]
    second = room.join()
    for _ in range(5):
        room.advance(9_000)
        room.heartbeat(first)
    assert second == []
    assert len(room.group.members) == 2


def test_leaving_member_is_gone_at_once() -> None:
    room = Room()
    first, second = room.stable(2)
    assert room.group.leave(second.member_id, None, room.now_ms) is ErrorCode.NONE
    assert room.group.leave(second.member_id, None, room.now_ms) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert only(room.join(first.member_id)).generation_id == 3


def test_leaving_member_ends_the_join_phase_that_waited_for_it() -> None:
    room = Room()
    first = room.stable(1)[0]
    second = room.join()
    room.group.leave(first.member_id, None, room.now_ms)
    assert only(second).leader == only(second).member_id


def test_member_that_leaves_while_its_join_is_held_is_answered() -> None:
    room = Room()
    room.stable(1)
    second = room.join()
    room.group.leave("client-2", None, room.now_ms)
    assert only(second).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_unchanged_follower_that_joins_again_gets_the_current_generation() -> None:
    room = Room()
    leader, follower = room.stable(2)
    again = only(room.join(follower.member_id))
    assert (again.error_code, again.generation_id, again.members) == (ErrorCode.NONE, 2, ())
    assert room.group.state is GroupState.STABLE
    room.join(leader.member_id)
    assert room.group.state is GroupState.PREPARING


def test_changed_subscription_of_a_follower_rebalances() -> None:
    room = Room()
    _, follower = room.stable(2)
    assert room.join(follower.member_id, protocols={"range": b"other topics"}) == []
    assert room.group.state is GroupState.PREPARING


def test_join_repeated_before_the_sync_phase_ends_gets_the_same_answer() -> None:
    room = Room()
    joined = only(room.join())
    assert only(room.join(joined.member_id)) == joined
    assert room.group.state is GroupState.COMPLETING


def test_held_syncs_are_told_of_the_next_rebalance() -> None:
    room = Room()
    leader = room.stable(1)[0]
    follower_join = room.join()
    room.join(leader.member_id)
    held = room.sync(only(follower_join))
    room.join()
    assert held[0].error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_join_over_another_connection_answers_the_first_one() -> None:
    room = Room()
    room.stable(1)
    room.join()
    lost = room.join()
    room.join("client-3")
    assert only(lost).error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_errors_follow_the_state() -> None:
    room = Room()
    joined = only(room.join())
    assert room.sync(joined, generation=7)[0].error_code is ErrorCode.ILLEGAL_GENERATION
    assert room.sync(joined._replace(protocol_name="sticky"))[0].error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.sync(joined._replace(member_id="x"))[0].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    room.sync(joined, {})
    room.join()
    assert room.sync(joined)[0].error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeat_errors_follow_the_state() -> None:
    room = Room()
    joined = only(room.join())
    assert room.heartbeat(joined) is ErrorCode.NONE
    assert room.heartbeat(joined._replace(generation_id=0)) is ErrorCode.ILLEGAL_GENERATION
    assert room.heartbeat(joined._replace(member_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_is_checked_by_state() -> None:
    room = Room()

    def commit(member_id: str, generation_id: int) -> ErrorCode:
        return room.group.check_commit(member_id, None, generation_id, room.now_ms)

    assert commit("", -1) is ErrorCode.NONE
    assert commit("x", -1) is ErrorCode.NONE  # librdkafka's consumers have an id although they do not join
    joined = only(room.join())
    assert commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(joined.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    room.sync(joined, {})
    assert commit(joined.member_id, 1) is ErrorCode.NONE
    assert commit(joined.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    room.join()
    assert commit(joined.member_id, 1) is ErrorCode.NONE


def test_restarted_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    room = Room()
    room.join(instance="i")
    old = only(room.join("i-1", instance="i"))
    room.sync(old, {old.member_id: b"mine"})
    restarted = only(room.join(instance="i", skip=True))
    assert (restarted.generation_id, restarted.skip_assignment) == (1, True)
    assert restarted.leader == restarted.member_id == "i-2"
    assert room.sync(restarted)[0].assignment == b"mine"
    assert room.group.heartbeat("i-1", "i", 1, 0) is ErrorCode.FENCED_INSTANCE_ID


def test_restarted_static_leader_that_cannot_skip_is_told_somebody_else_leads() -> None:
    room = Room()
    old = only(room.join(instance="i"))
    room.sync(old, {})
    restarted = only(room.join(instance="i"))
    assert restarted.leader == old.member_id != restarted.member_id


def test_static_member_is_fenced_when_a_second_one_takes_its_instance_id() -> None:
    room = Room()
    room.stable(1)
    held = room.join(instance="i")
    room.join(instance="i")
    assert only(held).error_code is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_can_be_removed_by_its_instance_id() -> None:
    room = Room()
    room.join(instance="i")
    assert room.group.leave("", "i", 0) is ErrorCode.NONE
    assert room.group.leave("", "i", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.group.state is GroupState.EMPTY


def test_absent_static_member_stays_until_its_session_ends() -> None:
    room = Room()
    static = only(room.join(instance="i", session_ms=300_000))
    room.sync(static, {})
    other = room.join()
    room.advance(REBALANCE_MS)
    assert only(other).error_code is ErrorCode.NONE
    assert static.member_id in room.group.members


def test_only_an_empty_group_can_be_deleted() -> None:
    room = Room()
    room.stable(1)
    assert room.group.delete() is ErrorCode.NON_EMPTY_GROUP
    room.advance(SESSION_MS)
    assert room.group.delete() is ErrorCode.NONE
    assert only(room.join()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("target", list(GroupState))
@pytest.mark.parametrize("state", list(GroupState))
def test_illegal_transition_raises_and_changes_nothing(state: GroupState, target: GroupState) -> None:
    group = Group("g", GroupConfig())
    group.state = state
    transition: Callable[[GroupState], None] = group._transition
    if target in TRANSITIONS[state]:
        transition(target)
        assert group.state is target
    else:
        with pytest.raises(IllegalStateError, match=f"group g cannot go from {state.value} to {target.value}"):
            transition(target)
        assert group.state is state


def test_transactional_commit_checks_the_member_if_one_is_named() -> None:
    room = Room()

    def commit(member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        return room.group.check_transactional_commit(member_id, instance_id, generation_id, room.now_ms)

    assert commit("", -1) is ErrorCode.NONE
    joined = only(room.join())
    assert commit("", -1) is ErrorCode.NONE  # a producer that does not know the consumer's group (before KIP-447)
    assert commit(joined.member_id, 1) is ErrorCode.NONE  # unlike other commits, also before the assignment
    room.sync(joined, {})
    assert commit(joined.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    room.join()
    assert commit(joined.member_id, 1) is ErrorCode.NONE


def test_transactional_commit_of_a_replaced_static_member_is_fenced() -> None:
    room = Room()
    old = only(room.join(instance="i"))
    room.sync(old, {})
    room.join(instance="i")
    check = room.group.check_transactional_commit
    assert check(old.member_id, "i", old.generation_id, room.now_ms) is ErrorCode.FENCED_INSTANCE_ID
