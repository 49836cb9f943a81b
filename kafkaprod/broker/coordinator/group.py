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
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

from kafkaprod.broker.coordinator.member import (
    GroupConfig,
    JoinAttempt,
    JoinedMember,
    JoinReply,
    JoinResult,
    Member,
    SyncAttempt,
    SyncReply,
    SyncResult,
)
from kafkaprod.broker.coordinator.subscription import CONSUMER_PROTOCOL_TYPE, read_subscription
from kafkaprod.errors import CorruptDataError, IllegalStateError
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
        config: limits and times; may be replaced.
        generation_id: counts rebalances.
        protocol_type: what the members are ("consumer"); None before the first one and after the last one left.
        protocol_name: the assignor all members agreed on, None outside a generation.
        leader_id: the member that assigns.
        members: by id, in the order they came.
    """

    def __init__(self, group_id: str, config: GroupConfig, new_uuid: Callable[[], object] = uuid.uuid4) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.config = config
        self._new_uuid = new_uuid
        self._static_ids: dict[str, str] = {}  # instance id -> member id
        self._pending_ids: dict[str, int] = {}  # ids given out and not used yet -> deadline
        self._unsynced_ids: set[str] = set()  # of this generation
        self._join_deadline_ms: int | None = None  # set while PREPARING
        self._sync_deadline_ms: int | None = None
        self._initial_delay_left_ms: int | None = None  # set in the join phase of a group that was empty
        self._has_new_member = False

    # -- requests ------------------------------------------------------------------------------------------------

    def join(self, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        """JoinGroup; `reply` is called now or when the join phase ends."""
        refusal = self._why_refuse(attempt)
        if refusal is not ErrorCode.NONE:
            reply(JoinResult(refusal, attempt.member_id))
        elif attempt.member_id in self._pending_ids:
            del self._pending_ids[attempt.member_id]
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
        """Heartbeat: 0, or 27 while the group waits for the member to join again."""
        error = self._check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.members[member_id].keep_alive(now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        """LeaveGroup of one member; a static one may be named by its instance id alone."""
        if instance_id is not None and not member_id:
            member_id = self._static_ids.get(instance_id, "")
        if self._pending_ids.pop(member_id, None) is not None:
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

        Without member and generation it is an administrator or a consumer without a group: the group must be empty.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if self.state is GroupState.EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.members[member_id].keep_alive(now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING else ErrorCode.NONE

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Whether this sender may commit offsets in a transaction now; counts as a sign of life (KIP-447).

        Without member and generation it is a producer that does not know its consumer's group: nothing is checked.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        error = self._check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.members[member_id].keep_alive(now_ms)
        return ErrorCode.NONE

    def delete(self) -> ErrorCode:
        """DeleteGroups: an empty group becomes Dead; any other is refused with 68."""
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._pending_ids.clear()
        self._transition(GroupState.DEAD)
        return ErrorCode.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics the members are subscribed to; None if they are no consumers, or say it unreadably."""
        if self.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for metadata in member.protocols.values()
                for topic in read_subscription(metadata)
            )
        except CorruptDataError:
            return None

    # -- time ----------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is to be called next, None if nothing waits for time."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.is_waiting]
        deadlines.extend(self._pending_ids.values())
        deadlines.extend(d for d in (self._join_deadline_ms, self._sync_deadline_ms) if d is not None)
        return min(deadlines, default=None)

    def on_time(self, now_ms: int) -> None:
        """Do what is due: expire ids and sessions, end the join phase, drop members that never synced."""
        expired_ids = [member_id for member_id, deadline in self._pending_ids.items() if deadline <= now_ms]
        for member_id in expired_ids:
            del self._pending_ids[member_id]
        expired = [m for m in self.members.values() if not m.is_waiting and m.session_deadline_ms <= now_ms]
        for member in expired:
            self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if expired or expired_ids:
            self._on_loss(now_ms, is_member=bool(expired))
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._end_join_phase(now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._end_sync_phase(now_ms)

    # -- joining -------------------------------------------------------------------------------------------------

    def _why_refuse(self, attempt: JoinAttempt) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        limits = self.config
        if not limits.min_session_timeout_ms <= attempt.session_timeout_ms <= limits.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not attempt.protocol_type or not attempt.protocols or not self._is_compatible(attempt):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if sum(map(len, attempt.protocols.values())) > limits.max_metadata_bytes:
            return ErrorCode.INVALID_REQUEST
        is_known = attempt.member_id in self.members or (attempt.instance_id or "") in self._static_ids
        if not is_known and len(self.members) >= limits.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _is_compatible(self, attempt: JoinAttempt) -> bool:
        if not self.members:
            return True
        own_id = attempt.member_id or self._static_ids.get(attempt.instance_id or "")
        others = [member for member in self.members.values() if member.member_id != own_id]
        names = set(attempt.protocols).intersection(*(member.protocols for member in others))
        return attempt.protocol_type == self.protocol_type and bool(names)

    def _join_dynamic(self, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        member_id = f"{attempt.client_id}-{self._new_uuid()}"
        if attempt.needs_known_id:
            self._pending_ids[member_id] = now_ms + attempt.session_timeout_ms
            reply(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, attempt, now_ms, reply)

    def _join_static(self, attempt: JoinAttempt, instance_id: str, now_ms: int, reply: JoinReply) -> None:
        """A static member (re)starts: it takes the place of its old self, without a rebalance if nothing changes."""
        member_id = f"{instance_id}-{self._new_uuid()}"
        old_id = self._static_ids.get(instance_id)
        if old_id is None:
            self._add(member_id, attempt, now_ms, reply)
            return
        was_leader = old_id == self.leader_id
        member = self._rename(old_id, member_id)
        member.update(attempt)
        member.keep_alive(now_ms)
        if self.state is GroupState.STABLE and self._select_protocol() == self.protocol_name:
            skips = was_leader and attempt.can_skip_assignment
            # A leader that does not know SkipAssignment gets its old id as the leader's, so that it does not assign.
            leader = old_id if was_leader and not skips else str(self.leader_id)
            reply(self._join_result(member)._replace(leader=leader, skip_assignment=skips))
            return
        member.hold_join(reply)
        self._rebalance(now_ms)

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
            self._rebalance(now_ms)

    def _add(self, member_id: str, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        if not self.members:
            self.protocol_type = attempt.protocol_type
        member = Member(
            member_id,
            attempt.instance_id,
            attempt.client_id,
            attempt.client_host,
            attempt.session_timeout_ms,
            attempt.rebalance_timeout_ms,
            dict(attempt.protocols),
            now_ms + attempt.session_timeout_ms,
        )
        self.members[member_id] = member
        if attempt.instance_id is not None:
            self._static_ids[attempt.instance_id] = member_id
        if self.leader_id is None:
            self.leader_id = member_id
        self._has_new_member = True
        member.hold_join(reply)
        self._rebalance(now_ms)

    def _rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member's place to its new self; whoever still speaks with the old id is fenced (82)."""
        member = self.members.pop(old_id)
        member.answer_join(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        member.member_id = new_id
        self.members[new_id] = member
        self._static_ids[str(member.instance_id)] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self._unsynced_ids:
            self._unsynced_ids.remove(old_id)
            self._unsynced_ids.add(new_id)
        return member

    # -- the join phase ------------------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
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
        if was_empty:
            delay_ms = self.config.initial_rebalance_delay_ms
            self._initial_delay_left_ms = max(self._rebalance_timeout_ms() - delay_ms, 0)
            self._has_new_member = False
            self._join_deadline_ms = now_ms + delay_ms
            if delay_ms == 0:
                self._complete_join(now_ms)
        else:
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            self._maybe_complete_join(now_ms)

    def _maybe_complete_join(self, now_ms: int) -> None:
        """End the join phase early if everybody is there. The initial delay is always waited out."""
        if self.state is not GroupState.PREPARING or self._initial_delay_left_ms is not None or self._pending_ids:
            return
        if all(member.held_join is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def _end_join_phase(self, now_ms: int) -> None:
        left_ms = self._initial_delay_left_ms
        if left_ms and self._has_new_member:  # more are coming: wait again, at most the rebalance timeout in all
            delay_ms = min(self.config.initial_rebalance_delay_ms, left_ms)
            self._initial_delay_left_ms = left_ms - delay_ms
            self._has_new_member = False
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin a generation with those that joined. Static members that did not stay until their session ends."""
        absent = [m for m in self.members.values() if m.held_join is None and m.instance_id is None]
        for member in absent:
            self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        joined_ids = [m.member_id for m in self.members.values() if m.held_join is not None]
        if self.members and not joined_ids:
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            return
        self._join_deadline_ms = self._initial_delay_left_ms = None
        self.generation_id += 1
        if not self.members:
            self.protocol_type = self.protocol_name = self.leader_id = None
            self._transition(GroupState.EMPTY)
            return
        if self.leader_id not in joined_ids:
            self.leader_id = joined_ids[0]
        self.protocol_name = self._select_protocol()
        self._transition(GroupState.COMPLETING)
        self._unsynced_ids = set(self.members)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            member.assignment = b""
            if member.held_join is not None:
                member.keep_alive(now_ms)
                member.answer_join(self._join_result(member))

    def _select_protocol(self) -> str:
        """The protocol all members know that most of them prefer; the first one to be named wins a tie."""
        first, *others = (member.protocols for member in self.members.values())
        candidates = [name for name in first if all(name in protocols for protocols in others)]
        votes = Counter(
            next(name for name in member.protocols if name in candidates) for member in self.members.values()
        )
        return max(candidates, key=lambda name: votes[name])

    def _join_result(self, member: Member) -> JoinResult:
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == self.leader_id:
            name = str(self.protocol_name)
            members = tuple(JoinedMember(m.member_id, m.instance_id, m.protocols[name]) for m in self.members.values())
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            str(self.leader_id),
            members,
        )

    # -- the sync phase ------------------------------------------------------------------------------------------

    def _check_generation(self, attempt: SyncAttempt) -> ErrorCode:
        if attempt.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        is_type_other = attempt.protocol_type is not None and attempt.protocol_type != self.protocol_type
        is_name_other = attempt.protocol_name is not None and attempt.protocol_name != self.protocol_name
        if is_type_other or is_name_other:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        self._transition(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
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

    # -- inside --------------------------------------------------------------------------------------------------

    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            current_id = self._static_ids.get(instance_id)
            if current_id is not None and current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            return ErrorCode.NONE if current_id is not None else ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _remove(self, member: Member, error: ErrorCode) -> None:
        del self.members[member.member_id]
        self._unsynced_ids.discard(member.member_id)
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        member.answer_join(JoinResult(error, member.member_id))
        member.answer_sync(SyncResult(error))

    def _on_loss(self, now_ms: int, *, is_member: bool = True) -> None:
        """After members, or ids that were given out, are gone."""
        if is_member and self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(now_ms)
        else:
            self._maybe_complete_join(now_ms)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _transition(self, target: GroupState) -> None:
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"group {self.group_id} cannot go from {self.state.value} to {target.value}")
        self.state = target
