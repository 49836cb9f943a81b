"""Any history of joins, syncs, heartbeats, departures and time keeps the promises of the group protocol."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kafkaprod.broker.coordinator.group import Group, GroupState
from kafkaprod.broker.coordinator.member import GroupConfig, JoinAttempt, JoinResult, SyncAttempt, SyncResult
from kafkaprod.protocol.error_codes import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000


class Call:
    """A join or sync: who sent it, and the answers it got."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.answers: list[JoinResult | SyncResult] = []

    def receive(self, answer: JoinResult | SyncResult) -> None:
        self.answers.append(answer)
        assert len(self.answers) == 1, "answered twice"


class GroupMachine(RuleBasedStateMachine):
    """Members that do anything at any time; the group must stay consistent and forget no call."""

    members = Bundle("members")

    @initialize(delay_ms=st.sampled_from([0, 3_000]))
    def open(self, delay_ms: int) -> None:
        numbers = count(1)
        self.group = Group("g", GroupConfig(initial_rebalance_delay_ms=delay_ms), new_uuid=lambda: next(numbers))
        self.now_ms = 0
        self.calls: list[Call] = []

    def join_with(self, member_id: str, metadata: bytes, instance_id: str | None, *, needs_id: bool) -> Call:
        attempt = JoinAttempt(
            member_id,
            instance_id,
            "c",
            "h",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            {"range": metadata, "sticky": b""},
            needs_id,
            False,
        )
        call = Call(member_id)
        self.calls.append(call)
        self.group.join(attempt, self.now_ms, call.receive)
        return call

    @rule(target=members, metadata=st.sampled_from([b"a", b"b"]), needs_id=st.booleans())
    def join_anew(self, metadata: bytes, needs_id: bool) -> object:
        call = self.join_with("", metadata, None, needs_id=needs_id)
        newest = list(self.group.members)[-1:] if not call.answers else [call.answers[0].member_id]  # type: ignore[union-attr]
        return multiple(*newest)

    @rule(target=members, instance=st.sampled_from(["i", "j"]), metadata=st.sampled_from([b"a", b"b"]))
    def join_static(self, instance: str, metadata: bytes) -> object:
        self.join_with("", metadata, instance, needs_id=False)
        return multiple(*(m.member_id for m in self.group.members.values() if m.instance_id == instance))

    @rule(member_id=members, metadata=st.sampled_from([b"a", b"b"]))
    def join_again(self, member_id: str, metadata: bytes) -> None:
        member = self.group.members.get(member_id)
        self.join_with(member_id, metadata, None if member is None else member.instance_id, needs_id=True)

    @rule(member_id=members, is_stale=st.booleans())
    def sync(self, member_id: str, is_stale: bool) -> None:
        member = self.group.members.get(member_id)
        shares = {other: f"{self.group.generation_id}/{other}".encode() for other in self.group.members}
        attempt = SyncAttempt(
            member_id,
            None if member is None else member.instance_id,
            self.group.generation_id - is_stale,
            "consumer",
            None,
            shares if member_id == self.group.leader_id else {},
        )
        call = Call(member_id)
        self.calls.append(call)
        self.group.sync(attempt, self.now_ms, call.receive)
        if is_stale:
            assert call.answers[0].error_code != ErrorCode.NONE

    @rule(member_id=members)
    def heartbeat(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        instance_id = None if member is None else member.instance_id
        error = self.group.heartbeat(member_id, instance_id, self.group.generation_id, self.now_ms)
        assert (error == ErrorCode.UNKNOWN_MEMBER_ID) == (member is None)
        if member is not None:
            assert (error == ErrorCode.REBALANCE_IN_PROGRESS) == (self.group.state is GroupState.PREPARING)

    @rule(member_id=consumes(members))
    def leave(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        self.group.leave(member_id, None if member is None else member.instance_id, self.now_ms)
        assert member_id not in self.group.members

    @rule(ms=st.sampled_from([1, 3_000, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        for _ in range(1000):
            deadline_ms = self.group.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(deadline_ms, self.now_ms)
            self.group.on_time(self.now_ms)
        else:
            raise AssertionError("deadlines without end")
        self.now_ms = end_ms

    @invariant()
    def held_calls_belong_to_members(self) -> None:
        if not hasattr(self, "group"):
            return
        open_count = sum(not call.answers for call in self.calls)
        held = [(m.held_join is not None) + (m.held_sync is not None) for m in self.group.members.values()]
        assert open_count == sum(held)

    @invariant()
    def leader_and_state_fit_the_members(self) -> None:
        if not hasattr(self, "group"):
            return
        group = self.group
        assert (group.leader_id in group.members) == bool(group.members)
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state is GroupState.STABLE:
            assert group.members
            assert all(member.held_sync is None and member.held_join is None for member in group.members.values())
        if group.state is GroupState.PREPARING:
            assert all(member.held_sync is None for member in group.members.values())
        if group.state is GroupState.COMPLETING:
            assert all(member.held_join is None for member in group.members.values())

    @invariant()
    def one_generation_has_one_leader_and_one_set_of_members(self) -> None:
        if not hasattr(self, "group"):
            return
        for call in self.calls:
            for answer in call.answers:
                if isinstance(answer, JoinResult) and answer.members:
                    told = {member.member_id for member in answer.members}
                    assert answer.member_id in told
                if isinstance(answer, SyncResult) and answer.error_code == ErrorCode.NONE and answer.assignment:
                    assert answer.assignment.decode().split("/")[0].isdigit()

    def teardown(self) -> None:
        """Let time run out: every call must be answered and the group must end empty."""
        if not hasattr(self, "group"):
            return
        for _ in range(50):
            self.wait(REBALANCE_MS)
        assert all(call.answers for call in self.calls)
        assert not self.group.members
        assert self.group.next_deadline_ms() is None


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroup = GroupMachine.TestCase
