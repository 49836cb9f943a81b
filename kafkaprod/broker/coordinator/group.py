"""One group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) as a state machine.

    Empty --join--> PreparingRebalance --all joined, or time--> CompletingRebalance --leader's sync--> Stable
                        |    ^                                       |                                   |
                        |    +-- a member joins, leaves or expires --+-----------------------------------+
                        +--all have left--> Empty --deleted--> Dead

Joins and syncs that must wait are held as reply functions and answered exactly once. Pure: no I/O, no clock; whoever
owns the group calls `on_time` at `next_deadline_ms`. One thread. Source: Kafka, ClassicGroup and GroupMetadataManager;
KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (known ids), KIP-814.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from enum import Enum

from kafkaprod.broker.coordinator.group_members import GroupMembers
from kafkaprod.broker.coordinator.join_phase import JoinPhase
from kafkaprod.broker.coordinator.member import (
    GroupConfig,
    JoinAttempt,
    JoinReply,
    JoinResult,
    Member,
    SyncAttempt,
    SyncReply,
    SyncResult,
)
from kafkaprod.broker.coordinator.subscription import CONSUMER_PROTOCOL_TYPE
from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode


class GroupState(Enum):
    """The states, by the names DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = GroupState
TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING, _S.DEAD}),
    _S.PREPARING: frozenset({_S.COMPLETING, _S.EMPTY}),
    _S.COMPLETING: frozenset({_S.PREPARING, _S.STABLE}),
    _S.STABLE: frozenset({_S.PREPARING}),
    _S.DEAD: frozenset(),
}


class Group:
    """See the module docstring.

    Attributes:
        config: Limits and times; may be replaced.
        generation_id: Counts rebalances.
        protocol_type: What the members are ("consumer"), or were: it outlives the last one. None before the first one.
        protocol_name: The assignor all members agreed on, None outside a generation.
        members: By id, in the order they came; those of `roster`.
        save: Makes the group durable before members are answered; returns the error that they get if that fails.
    """

    def __init__(self, group_id: str, config: GroupConfig, new_uuid: Callable[[], object] = uuid.uuid4) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = GroupMembers()
        self.members = self.roster.by_id
        self.config = config
        self.save: Callable[[Group], ErrorCode] = _no_save
        self._new_uuid = new_uuid
        self._unsynced_ids: set[str] = set()  # of this generation
        self._join_phase: JoinPhase | None = None  # set while PREPARING
        self._sync_deadline_ms: int | None = None

    @property
    def leader_id(self) -> str | None:
        """The member that assigns."""
        return self.roster.leader_id

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        """JoinGroup; `reply` is called now or when the join phase ends."""
        refusal = self.roster.why_refuse(attempt, self.protocol_type, self.config)
        if self.state is GroupState.DEAD:
            refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if refusal is not ErrorCode.NONE:
            reply(JoinResult(refusal, attempt.member_id))
        elif attempt.member_id in self.roster.pending_ids:
            del self.roster.pending_ids[attempt.member_id]
            self._add(attempt.member_id, attempt, now_ms, reply)
        elif attempt.member_id:
            self._join_again(attempt, now_ms, reply)
        elif attempt.instance_id is not None:
            self._join_static(attempt, attempt.instance_id, now_ms, reply)
        else:
            self._join_dynamic(attempt, now_ms, reply)

    def sync(self, attempt: SyncAttempt, now_ms: int, reply: SyncReply) -> None:
        """SyncGroup; `reply` is called now or when the leader's assignment is there."""
        error = self._check_member(attempt.member_id, attempt.instance_id)
        if error is ErrorCode.NONE:
            error = self._check_generation(attempt)
        if error is not ErrorCode.NONE:
            reply(SyncResult(error))
            return
        member = self.members[attempt.member_id]
        self._unsynced_ids.discard(member.member_id)
        member.keep_alive(now_ms)
        if self.state is GroupState.STABLE:
            reply(self._sync_result(member))
            return
        member.hold_sync(reply)
        if member.member_id == self.leader_id:
            self._assign(attempt.assignments, now_ms)

    def heartbeat(self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Heartbeat: NONE, or REBALANCE_IN_PROGRESS while the group waits for the member to join again."""
        error = self._check_sender(member_id, instance_id, generation_id, now_ms)
        is_late = error is ErrorCode.NONE and self.state is GroupState.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if is_late else error

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        """LeaveGroup of one member; a static one may be named by its instance id alone."""
        if instance_id is not None and not member_id:
            member_id = self.roster.static_ids.get(instance_id, "")
        if self.roster.pending_ids.pop(member_id, None) is not None:
            self._maybe_complete_join(now_ms)
            return ErrorCode.NONE
        error = self._check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._remove(self.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
            self._on_loss(now_ms)
        return error

    def abandon_join(self, reply: JoinReply, now_ms: int) -> None:
        """Drop the join that `reply` would answer: the client's connection is closed.

        A new member is removed. One that had joined before may come back until its session ends.
        """
        for member in list(self.members.values()):
            if member.held_join is not reply:
                continue
            member.held_join = None
            member.keep_alive(now_ms)
            if not member.has_joined:
                self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
                self._on_loss(now_ms)

    def check_commit(self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Whether this sender may commit offsets now; counts as a sign of life.

        Without generation it is an administrator, or a consumer that does not join: the group must be empty.
        """
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._check_sender(member_id, instance_id, generation_id, now_ms)
        is_early = error is ErrorCode.NONE and self.state is GroupState.COMPLETING
        return ErrorCode.REBALANCE_IN_PROGRESS if is_early else error

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Whether this sender may commit offsets in a transaction now; counts as a sign of life (KIP-447).

        Without member and generation it is a producer that does not know its consumer's group: nothing is checked.
        """
        is_unknown = not member_id and instance_id is None and self.state is not GroupState.DEAD
        if generation_id < 0 and (is_unknown or self.state is GroupState.EMPTY):
            return ErrorCode.NONE
        return self._check_sender(member_id, instance_id, generation_id, now_ms)

    def delete(self) -> ErrorCode:
        """DeleteGroups: an empty group becomes Dead; any other is refused with NON_EMPTY_GROUP."""
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self.roster.pending_ids.clear()
        self._transition(GroupState.DEAD)
        return ErrorCode.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics the members are subscribed to; None if they are no consumers, or say it unreadably."""
        if self.members and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return self.roster.subscribed_topics()

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `on_time` must be called next, None if nothing waits for time."""
        own = (None if self._join_phase is None else self._join_phase.deadline_ms, self._sync_deadline_ms)
        return min((*self.roster.deadlines(), *(deadline for deadline in own if deadline is not None)), default=None)

    def on_time(self, now_ms: int) -> None:
        """Do what is due: expire ids and sessions, end the join phase, drop members that never synced."""
        has_expired_ids = self.roster.expire_ids(now_ms)
        expired = [m for m in self.members.values() if not m.is_waiting and m.session_deadline_ms <= now_ms]
        for member in expired:
            self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if expired or has_expired_ids:
            self._on_loss(now_ms, is_member=bool(expired))
        if self._is_join_phase_over(now_ms):
            self._complete_join(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._end_sync_phase(now_ms)

    # -- joining -------------------------------------------------------------------------------------------------------

    def _join_dynamic(self, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        member_id = f"{attempt.client_id}-{self._new_uuid()}"
        if attempt.needs_known_id:
            self.roster.pending_ids[member_id] = now_ms + attempt.session_timeout_ms
            reply(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, attempt, now_ms, reply)

    def _join_static(self, attempt: JoinAttempt, instance_id: str, now_ms: int, reply: JoinReply) -> None:
        """A static member (re)starts: it takes the place of its old self, without a rebalance if nothing changes."""
        member_id = f"{instance_id}-{self._new_uuid()}"
        old_id = self.roster.static_ids.get(instance_id)
        if old_id is None:
            self._add(member_id, attempt, now_ms, reply)
            return
        was_leader = old_id == self.leader_id
        member = self.roster.rename(old_id, member_id)
        if old_id in self._unsynced_ids:
            self._unsynced_ids ^= {old_id, member_id}
        member.update(attempt)
        member.keep_alive(now_ms)
        if self.state is GroupState.STABLE and self.roster.select_protocol() == self.protocol_name:
            skips = was_leader and attempt.can_skip_assignment
            # A leader that does not know SkipAssignment gets its old id as the leader's, so that it does not assign.
            leader = old_id if was_leader and not skips else str(self.leader_id)
            error = self.save(self)  # if it fails, the member tries again: its old self is gone in any case
            result = self._join_result(member)._replace(leader=leader, skip_assignment=skips)
            reply(result if error is ErrorCode.NONE else JoinResult(error, member_id))
            return
        member.hold_join(reply)
        self.rebalance(now_ms)

    def _join_again(self, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        error = self._check_member(attempt.member_id, attempt.instance_id)
        if error is not ErrorCode.NONE:
            reply(JoinResult(error, attempt.member_id))
            return
        member = self.members[attempt.member_id]
        is_same = member.has_same_protocols(attempt.protocols)
        is_leader = member.member_id == self.leader_id
        member.update(attempt)
        member.keep_alive(now_ms)
        is_current = self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)
        if is_current and is_same:
            reply(self._join_result(member))  # the answer to its last join was lost
        else:
            member.hold_join(reply)
            self.rebalance(now_ms)

    def _add(self, member_id: str, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        if not self.members:
            self.protocol_type = attempt.protocol_type
        member = self.roster.add(member_id, attempt, now_ms)
        if self._join_phase is not None:
            self._join_phase.has_new_member = True
        member.hold_join(reply)
        self.rebalance(now_ms)

    # -- the join phase ------------------------------------------------------------------------------------------------

    def rebalance(self, now_ms: int) -> None:
        """Begin a join phase, or continue with the one that runs."""
        if self.state is GroupState.PREPARING:
            self._maybe_complete_join(now_ms)
            return
        was_empty = self.state is GroupState.EMPTY
        self._transition(GroupState.PREPARING)
        for member in self.members.values():
            member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self._unsynced_ids.clear()
        self._sync_deadline_ms = None
        self._wait_for_joins(now_ms, self.config.initial_rebalance_delay_ms if was_empty else None)
        if was_empty and self._is_join_phase_over(now_ms):
            self._complete_join(now_ms)
        self._maybe_complete_join(now_ms)

    def _wait_for_joins(self, now_ms: int, initial_delay_ms: int | None) -> None:
        self._join_phase = JoinPhase(initial_delay_ms, now_ms, self.roster.rebalance_timeout_ms())

    def _is_join_phase_over(self, now_ms: int) -> bool:
        return self._join_phase is not None and self._join_phase.is_over(now_ms)

    def _maybe_complete_join(self, now_ms: int) -> None:
        """End the join phase early if everybody is there. The initial delay is always waited out."""
        if self._join_phase is None or self._join_phase.is_initial or self.roster.pending_ids:
            return
        if all(member.held_join is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin a generation with those that joined. Static members that did not stay until their session ends."""
        absent = [m for m in self.members.values() if m.held_join is None and m.instance_id is None]
        for member in absent:
            self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        joined_ids = [m.member_id for m in self.members.values() if m.held_join is not None]
        if self.members and not joined_ids:
            self._wait_for_joins(now_ms, None)
            return
        self._join_phase = None
        self.generation_id += 1
        if not self.members:
            self.protocol_name = self.roster.leader_id = None
            self._transition(GroupState.EMPTY)
            self.save(self)  # if it fails, a new coordinator finds that the members have expired
            return
        if self.leader_id not in joined_ids:
            self.roster.leader_id = joined_ids[0]
        self.protocol_name = self.roster.select_protocol()
        self._transition(GroupState.COMPLETING)
        self._unsynced_ids = set(self.members)
        self._sync_deadline_ms = now_ms + self.roster.rebalance_timeout_ms()
        for member in self.members.values():
            member.assignment = b""
            if member.held_join is not None:
                member.keep_alive(now_ms)
                member.answer_join(self._join_result(member))

    def _join_result(self, member: Member) -> JoinResult:
        return self.roster.join_result(member, self.generation_id, self.protocol_type, self.protocol_name)

    # -- the sync phase ------------------------------------------------------------------------------------------------

    def _check_generation(self, attempt: SyncAttempt) -> ErrorCode:
        if attempt.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        is_type_other = attempt.protocol_type is not None and attempt.protocol_type != self.protocol_type
        is_name_other = attempt.protocol_name is not None and attempt.protocol_name != self.protocol_name
        if is_type_other or is_name_other:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        error = self.save(self)
        if error is not ErrorCode.NONE:
            self.roster.refuse_assignment(error)
            self.rebalance(now_ms)
            return
        self._transition(GroupState.STABLE)
        for member in self.members.values():
            if member.held_sync is not None:
                member.keep_alive(now_ms)
                member.answer_sync(self._sync_result(member))
        if not self._unsynced_ids:
            self._sync_deadline_ms = None

    def _end_sync_phase(self, now_ms: int) -> None:
        self._sync_deadline_ms = None
        late = [self.members[member_id] for member_id in self._unsynced_ids if member_id in self.members]
        for member in late:
            self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if late:
            self._on_loss(now_ms)

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.roster.check(member_id, instance_id)

    def _check_sender(self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Whether the sender is a member of this generation; if so it is alive."""
        error = self._check_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE:
            self.members[member_id].keep_alive(now_ms)
        return error

    def _remove(self, member: Member, error: ErrorCode) -> None:
        self._unsynced_ids.discard(member.member_id)
        self.roster.remove(member, error)

    def _on_loss(self, now_ms: int, *, is_member: bool = True) -> None:
        """After members, or ids that were given out, are gone."""
        if is_member and self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.rebalance(now_ms)
        else:
            self._maybe_complete_join(now_ms)

    def _transition(self, target: GroupState) -> None:
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"group {self.group_id} cannot go from {self.state.value} to {target.value}")
        self.state = target


def _no_save(_: Group) -> ErrorCode:
    """Keep a group in memory only."""
    return ErrorCode.NONE
