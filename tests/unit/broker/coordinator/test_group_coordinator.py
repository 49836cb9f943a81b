"""All groups together: which are made, which are forgotten, and whose timers are due."""

from __future__ import annotations

import random

from kafkaprod.broker.coordinator.group import GroupState
from kafkaprod.broker.coordinator.group_coordinator import GroupCoordinator
from kafkaprod.broker.coordinator.member import GroupConfig, JoinAttempt, JoinResult, SyncAttempt, SyncResult
from kafkaprod.protocol.error_codes import ErrorCode

SESSION_MS = 10_000


class Groups:
    """A coordinator, and the groups that have committed offsets."""

    def __init__(self) -> None:
        self.with_offsets: set[str] = set()
        config = GroupConfig(initial_rebalance_delay_ms=0)
        self.coordinator = GroupCoordinator(config, self.with_offsets.__contains__)

    def join(self, group_id: str, now_ms: int, member_id: str = "") -> JoinResult:
        answers: list[JoinResult] = []
        attempt = JoinAttempt(
            member_id, None, "c", "h", SESSION_MS, SESSION_MS, "consumer", {"range": b""}, False, False
        )
        self.coordinator.join(group_id, attempt, now_ms, answers.append)
        return answers[0]

    def stable_member(self, group_id: str, now_ms: int) -> JoinResult:
        joined = self.join(group_id, now_ms)
        answers: list[SyncResult] = []
        attempt = SyncAttempt(joined.member_id, None, joined.generation_id, None, None, {})
        self.coordinator.sync(group_id, attempt, now_ms, answers.append)
        assert answers[0].error_code == ErrorCode.NONE
        return joined


def test_unknown_and_empty_group_ids_are_told_apart() -> None:
    groups = Groups()
    coordinator = groups.coordinator
    assert groups.join("", 0).error_code == ErrorCode.INVALID_GROUP_ID
    assert groups.join("g", 0, "somebody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat("g", "m", None, 0, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat("", "m", None, 0, 0) == ErrorCode.INVALID_GROUP_ID
    assert coordinator.leave("g", "m", None, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.delete("g") == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.check_commit("", "", None, -1, 0) == ErrorCode.INVALID_GROUP_ID
    assert coordinator.check_commit("g", "", None, -1, 0) == ErrorCode.NONE
    assert coordinator.check_commit("g", "m", None, 3, 0) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.list_groups([]) == []


def test_group_without_members_and_offsets_stays_until_the_clean_up() -> None:
    groups = Groups()
    groups.stable_member("g", 0)
    groups.stable_member("kept", 0)
    groups.with_offsets.add("kept")
    groups.coordinator.on_time(SESSION_MS)
    left = groups.coordinator.get("g")
    assert left is not None
    assert left.state is GroupState.EMPTY
    groups.coordinator.forget_unused()
    assert groups.coordinator.get("g") is None
    kept = groups.coordinator.get("kept")
    assert kept is not None
    assert kept.state is GroupState.EMPTY
    assert [group.group_id for group in groups.coordinator.list_groups(groups.with_offsets)] == ["kept"]


def test_clean_up_spares_groups_with_members_and_with_pending_ids() -> None:
    groups = Groups()
    groups.stable_member("stable", 0)
    attempt = JoinAttempt("", None, "c", "h", SESSION_MS, SESSION_MS, "consumer", {"range": b""}, True, False)
    answers: list[JoinResult] = []
    groups.coordinator.join("pending", attempt, 0, answers.append)
    groups.coordinator.forget_unused()
    assert [group.group_id for group in groups.coordinator.list_groups([])] == ["pending", "stable"]
    groups.coordinator.on_time(SESSION_MS)
    groups.coordinator.forget_unused()
    assert groups.coordinator.list_groups([]) == []


def test_group_whose_first_join_is_refused_is_not_kept() -> None:
    groups = Groups()
    attempt = JoinAttempt("", None, "c", "h", 1, 1, "consumer", {"range": b""}, False, False)
    answers: list[JoinResult] = []
    groups.coordinator.join("g", attempt, 0, answers.append)
    assert answers[0].error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert groups.coordinator.list_groups([]) == []


def test_heartbeats_put_the_end_of_a_session_off() -> None:
    groups = Groups()
    member = groups.stable_member("g", 0)
    for now_ms in range(0, 100_000, SESSION_MS - 1):
        groups.coordinator.on_time(now_ms)
        assert groups.coordinator.heartbeat("g", member.member_id, None, 1, now_ms) == ErrorCode.NONE
    deadline_ms = groups.coordinator.next_deadline_ms()
    assert deadline_ms is not None
    groups.coordinator.on_time(now_ms + SESSION_MS)
    group = groups.coordinator.get("g")
    assert group is not None
    assert group.state is GroupState.EMPTY
    assert groups.coordinator.next_deadline_ms() is None


def test_deadline_is_never_later_than_that_of_any_group() -> None:
    dice = random.Random(5)
    groups = Groups()
    members: dict[str, JoinResult] = {}
    now_ms = 0
    for _ in range(3000):
        now_ms += dice.randrange(400)
        group_id = f"g{dice.randrange(20)}"
        groups.coordinator.on_time(now_ms)
        groups.coordinator.forget_unused()
        if groups.coordinator.get(group_id) is None:
            members[group_id] = groups.stable_member(group_id, now_ms)
        else:
            groups.coordinator.heartbeat(group_id, members[group_id].member_id, None, 1, now_ms)
        earliest = min((group.next_deadline_ms() or 0 for group in groups.coordinator.list_groups([])), default=None)
        scheduled = groups.coordinator.next_deadline_ms()
        assert earliest is not None
        assert scheduled is not None
        assert scheduled <= earliest
    assert len(groups.coordinator._deadlines) < 200
