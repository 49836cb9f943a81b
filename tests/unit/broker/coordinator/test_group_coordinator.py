"""All groups together: which are made, which are forgotten, and whose timers are due."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.classic_records import decode_key as decode_classic_key
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.consumer_groups import ConsumerGroups
from kafkaprod.broker.coordinator.consumer_records import decode_key
from kafkaprod.broker.coordinator.group import GroupState
from kafkaprod.broker.coordinator.group_coordinator import GroupCoordinator
from kafkaprod.broker.coordinator.member import GroupConfig, JoinAttempt, JoinResult, SyncAttempt, SyncResult
from kafkaprod.broker.coordinator.saved_groups import MAX_GROUP_BYTES, SavedGroups
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.internal_records import KeyValue
from tests.support.broker.consumer_member import Client, partitions, topics

SESSION_MS = 10_000


class Groups:
    """A coordinator, and the groups that have committed offsets."""

    def __init__(self) -> None:
        self.with_offsets: set[str] = set()
        self.records: dict[str, dict[bytes, bytes]] = {}
        self.classic: dict[str, bytes] = {}
        self.is_disk_full = False
        self.coordinator = self.start(0)

    def start(self, now_ms: int) -> GroupCoordinator:
        """Make a coordinator of what is written, as after a restart."""
        existing = topics({"orders": 2})
        consumers = ConsumerGroups(lambda _: ConsumerGroupConfig(), lambda: existing, self.records, self.write, now_ms)
        saved = SavedGroups(self.classic, self.write, lambda: 0)
        config = GroupConfig(initial_rebalance_delay_ms=0)
        self.coordinator = GroupCoordinator(config, self.with_offsets.__contains__, consumers, saved, now_ms)
        return self.coordinator

    def write(self, records: Sequence[KeyValue]) -> None:
        if self.is_disk_full:
            raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        for key, value in records:
            classic_id = decode_classic_key(key)
            if classic_id is not None:
                self.classic.pop(classic_id, None)
                self.classic.update({} if value is None else {classic_id: value})
                continue
            group_id = decode_key(key).group_id  # type: ignore[union-attr]
            self.records.setdefault(group_id, {})[key] = value  # type: ignore[assignment]
            if value is None:
                del self.records[group_id][key]

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
    assert coordinator.check_commit("", "", None, -1, 0, 9) == ErrorCode.INVALID_GROUP_ID
    assert coordinator.check_commit("g", "", None, -1, 0, 9) == ErrorCode.NONE
    assert coordinator.check_commit("g", "m", None, -1, 0, 9) == ErrorCode.NONE
    assert coordinator.check_commit("g", "m", None, 3, 0, 9) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.list_groups([]) == []


def test_a_group_id_that_is_too_long_makes_no_group() -> None:
    groups = Groups()
    longest, too_long = "g" * 1024, "g" * 1025
    assert groups.join(longest, 0).error_code != ErrorCode.INVALID_GROUP_ID
    assert groups.join(too_long, 0).error_code == ErrorCode.INVALID_GROUP_ID
    assert groups.coordinator.check_commit(longest[1:], "", None, -1, 0, 9) == ErrorCode.NONE
    assert groups.coordinator.check_commit(too_long, "", None, -1, 0, 9) == ErrorCode.INVALID_GROUP_ID
    assert groups.coordinator.get(too_long) is None


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
    assert len(groups.coordinator._timers._heap) < 200


def test_empty_group_takes_the_protocol_of_whoever_joins() -> None:
    groups = Groups()
    coordinator = groups.coordinator
    classic = groups.stable_member("g", 0)
    client = Client("a", {"orders"})
    with pytest.raises(RequestRefusedError, match="g is not a consumer group"):
        coordinator.consumer_heartbeat(client.request(), 0)  # its member does not say what it is subscribed to
    coordinator.leave("g", classic.member_id, None, 0)
    assert coordinator.consumer_heartbeat(client.request(), 0).assignment == partitions("orders", 0, 1)
    assert coordinator.get("g") is None
    assert groups.join("g", 0).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # no subscription
    assert coordinator.heartbeat("g", classic.member_id, None, 1, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.consumer_heartbeat(client.request()._replace(member_epoch=-1), 0)
    groups.stable_member("g", 0)
    assert coordinator.get_consumer("g") is None
    assert groups.records == {"g": {}}


def test_commits_of_consumer_groups_need_the_present_epoch() -> None:
    groups = Groups()
    coordinator = groups.coordinator
    coordinator.consumer_heartbeat(Client("a", {"orders"}).request(), 0)
    assert coordinator.check_commit("g", "a", None, 1, 0, 9) == ErrorCode.NONE
    assert coordinator.check_commit("g", "a", None, 0, 0, 9) == ErrorCode.STALE_MEMBER_EPOCH
    assert coordinator.check_commit("g", "a", None, 1, 0, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert coordinator.check_commit("g", "b", None, 1, 0, 8) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.check_commit("g", "", None, -1, 0, 9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.check_transactional_commit("g", "a", None, 1, 0) == ErrorCode.NONE
    assert coordinator.check_transactional_commit("g", "a", None, 0, 0) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.check_offset_fetch("g", "a", 1) == ErrorCode.NONE
    assert coordinator.check_offset_fetch("g", "a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert coordinator.check_offset_fetch("g", None, -1) == ErrorCode.NONE
    assert coordinator.delete("g") == ErrorCode.NON_EMPTY_GROUP
    coordinator.on_time(45_000)
    assert coordinator.check_commit("g", "", None, -1, 0, 2) == ErrorCode.NONE
    assert coordinator.check_transactional_commit("g", "", None, -1, 0) == ErrorCode.NONE
    coordinator.forget_unused()
    assert coordinator.delete("g") == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_cannot_be_written_has_not_happened() -> None:
    groups = Groups()
    coordinator = groups.coordinator
    a, b = Client("a", {"orders"}), Client("b", {"orders"})
    groups.is_disk_full = True
    with pytest.raises(RequestRefusedError, match="the disk is full"):
        coordinator.consumer_heartbeat(a.request(), 0)
    assert coordinator.get_consumer("g") is None
    groups.is_disk_full = False
    coordinator.consumer_heartbeat(a.request(), 0)
    groups.is_disk_full = True
    with pytest.raises(RequestRefusedError, match="the disk is full"):
        coordinator.consumer_heartbeat(b.request(), 0)
    coordinator.on_time(45_000)  # the member cannot be removed: it stays, and is tried again a session later
    group = coordinator.get_consumer("g")
    assert group is not None
    assert (list(group.members), group.epoch) == (["a"], 1)
    groups.is_disk_full = False
    coordinator.on_time(90_000)
    assert not coordinator.get_consumer("g").members  # type: ignore[union-attr]


def test_members_of_a_stable_group_stay_when_the_coordinator_starts_again() -> None:
    groups = Groups()
    member = groups.stable_member("g", 0)
    coordinator = groups.start(50_000)
    group = coordinator.get("g")
    assert group is not None
    assert (group.state, group.generation_id, group.leader_id) == (GroupState.STABLE, 1, member.member_id)
    assert coordinator.heartbeat("g", member.member_id, None, 1, 50_000) == ErrorCode.NONE
    assert coordinator.check_commit("g", member.member_id, None, 1, 50_000, 9) == ErrorCode.NONE
    coordinator.on_time(50_000 + SESSION_MS)  # the session began when the coordinator did
    assert (group.state, group.generation_id) == (GroupState.EMPTY, 2)
    again = groups.start(70_000).get("g")
    assert again is not None
    assert (again.state, again.generation_id, again.protocol_type) == (GroupState.EMPTY, 2, "consumer")


def test_an_assignment_that_cannot_be_written_is_not_given() -> None:
    groups = Groups()
    joined = groups.join("g", 0)
    answers: list[SyncResult] = []
    attempt = SyncAttempt(joined.member_id, None, joined.generation_id, None, None, {joined.member_id: b"all"})
    groups.is_disk_full = True
    groups.coordinator.sync("g", attempt, 0, answers.append)
    assert [answer.error_code for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert groups.coordinator.heartbeat("g", joined.member_id, None, 1, 0) == ErrorCode.REBALANCE_IN_PROGRESS
    groups.is_disk_full = False
    again = groups.join("g", 0, joined.member_id)
    groups.coordinator.sync("g", attempt._replace(generation_id=again.generation_id), 0, answers.append)
    assert (answers[1].error_code, answers[1].assignment) == (ErrorCode.NONE, b"all")


def test_a_group_that_is_gone_leaves_no_record() -> None:
    groups = Groups()
    for group_id in ("deleted", "unused", "used"):
        member = groups.stable_member(group_id, 0)
        groups.coordinator.leave(group_id, member.member_id, None, 0)
    assert sorted(groups.classic) == ["deleted", "unused", "used"]
    groups.is_disk_full = True
    assert groups.coordinator.delete("deleted") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.is_disk_full = False
    assert groups.coordinator.delete("deleted") == ErrorCode.NONE
    groups.with_offsets.add("used")
    groups.coordinator.forget_unused()
    assert sorted(groups.classic) == ["used"]


def test_calls_that_wait_are_answered_when_the_coordinator_moves() -> None:
    groups = Groups()
    first = groups.stable_member("g", 0)
    joins: list[JoinResult] = []
    attempt = JoinAttempt("", None, "c", "h", SESSION_MS, SESSION_MS, "consumer", {"range": b""}, False, False)
    groups.coordinator.join("g", attempt, 0, joins.append)
    assert joins == [], "it waits for the other member"
    groups.coordinator.dismiss()
    assert [join.error_code for join in joins] == [ErrorCode.NOT_COORDINATOR]
    assert groups.start(0).heartbeat("g", first.member_id, None, 1, 0) == ErrorCode.NONE


def test_group_too_large_for_its_record_gets_no_assignment_and_keeps_what_is_written() -> None:
    groups = Groups()
    joined = groups.join("g", 0)
    answers: list[SyncResult] = []
    assignments = {joined.member_id: bytes(MAX_GROUP_BYTES)}
    attempt = SyncAttempt(joined.member_id, None, joined.generation_id, None, None, assignments)
    groups.coordinator.sync("g", attempt, 0, answers.append)
    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not groups.classic
    again = groups.join("g", 0, joined.member_id)
    groups.coordinator.sync("g", attempt._replace(generation_id=again.generation_id, assignments={}), 0, answers.append)
    assert answers[-1].error_code == ErrorCode.NONE
    assert list(groups.classic) == ["g"]
