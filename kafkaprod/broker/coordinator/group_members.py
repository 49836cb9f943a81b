"""The members of a classic group: who they are, who leads, and which protocol they have in common.

Values and look-ups only; when a group rebalances is decided in `group`.
"""

from __future__ import annotations

from collections import Counter

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.coordinator.member import (
    GroupConfig,
    JoinAttempt,
    JoinedMember,
    JoinResult,
    Member,
    SyncResult,
)
from kafkaprod.broker.coordinator.subscription import read_topics
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode


class GroupMembers:
    """See the module docstring.

    Attributes:
        by_id: The members, in the order they came.
        static_ids: Instance id -> member id.
        pending_ids: Ids given out and not used yet -> their deadline.
        leader_id: The member that assigns; None if there is none.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        self.pending_ids: dict[str, int] = {}
        self.leader_id: str | None = None

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return UNKNOWN_MEMBER_ID if there is no such member, FENCED_INSTANCE_ID if another has its instance id."""
        if instance_id is not None:
            current_id = self.static_ids.get(instance_id)
            if current_id is not None and current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            return ErrorCode.NONE if current_id is not None else ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def why_refuse(self, attempt: JoinAttempt, protocol_type: str | None, limits: GroupConfig) -> ErrorCode:
        """Return the error of a join that may not be considered, or NONE; `protocol_type` is that of the members."""
        if not limits.min_session_timeout_ms <= attempt.session_timeout_ms <= limits.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        is_same_type = not self.by_id or attempt.protocol_type == protocol_type
        if not attempt.protocol_type or not is_same_type or not self._share_protocol(attempt):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if len(attempt.instance_id or "") > MAX_ID_CHARS:
            return ErrorCode.INVALID_REQUEST
        most_bytes = limits.max_metadata_bytes
        if max(sum(map(len, attempt.protocols)), sum(map(len, attempt.protocols.values()))) > most_bytes:
            return ErrorCode.INVALID_REQUEST
        is_known = attempt.member_id in self.by_id or (attempt.instance_id or "") in self.static_ids
        if not is_known and len(self.by_id) >= limits.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _share_protocol(self, attempt: JoinAttempt) -> bool:
        own_id = attempt.member_id or self.static_ids.get(attempt.instance_id or "")
        others = [member for member in self.by_id.values() if member.member_id != own_id]
        return bool(set(attempt.protocols).intersection(*(member.protocols for member in others)))

    def add(self, member_id: str, attempt: JoinAttempt, now_ms: int) -> Member:
        """Make a member of the one who joins; the first one leads."""
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
        self.place(member)
        return member

    def place(self, member: Member) -> None:
        """Add a member; the first one leads."""
        self.by_id[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member's place to its new self; calls of the old one get FENCED_INSTANCE_ID."""
        member = self.by_id.pop(old_id)
        member.answer_join(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        member.member_id = new_id
        self.by_id[new_id] = member
        self.static_ids[str(member.instance_id)] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def remove(self, member: Member, error: ErrorCode) -> None:
        """Remove a member; calls of it that wait are answered with the error."""
        del self.by_id[member.member_id]
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.by_id), None)
        member.answer_join(JoinResult(error, member.member_id))
        member.answer_sync(SyncResult(error))

    def refuse_assignment(self, error: ErrorCode) -> None:
        """Take the members' assignments back, and answer their syncs with an error."""
        for member in self.by_id.values():
            member.assignment = b""
            member.answer_sync(SyncResult(error))

    def dismiss(self, error: ErrorCode) -> None:
        """Answer all calls that wait with an error: the group has another coordinator now, or another protocol."""
        for member in self.by_id.values():
            member.answer_join(JoinResult(error, member.member_id))
            member.answer_sync(SyncResult(error))

    def deadlines(self) -> list[int]:
        """When sessions and ids that were given out end; members with a call that waits have no deadline."""
        sessions = [member.session_deadline_ms for member in self.by_id.values() if not member.is_waiting]
        return [*sessions, *self.pending_ids.values()]

    def expire_ids(self, now_ms: int) -> bool:
        """Forget ids that were not used in time; return whether there were any."""
        expired = [member_id for member_id, deadline in self.pending_ids.items() if deadline <= now_ms]
        for member_id in expired:
            del self.pending_ids[member_id]
        return bool(expired)

    def rebalance_timeout_ms(self) -> int:
        """The longest of all members."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def select_protocol(self) -> str:
        """The protocol all members know that most of them prefer; the first one to be named wins a tie."""
        first, *others = (member.protocols for member in self.by_id.values())
        candidates = [name for name in first if all(name in protocols for protocols in others)]
        votes = Counter(next(name for name in member.protocols if name in candidates) for member in self.by_id.values())
        return max(candidates, key=lambda name: votes[name])

    def join_result(
        self, member: Member, generation_id: int, protocol_type: str | None, protocol_name: str | None
    ) -> JoinResult:
        """Return the answer to a member's join; the leader gets all members."""
        members = self.with_metadata(str(protocol_name)) if member.member_id == self.leader_id else ()
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            generation_id,
            protocol_type,
            protocol_name,
            str(self.leader_id),
            members,
        )

    def with_metadata(self, protocol: str) -> tuple[JoinedMember, ...]:
        """All members as the leader sees them."""
        members = self.by_id.values()
        return tuple(JoinedMember(m.member_id, m.instance_id, m.protocols[protocol]) for m in members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members who are consumers are subscribed to; None if one is unreadable."""
        try:
            return frozenset(
                topic
                for member in self.by_id.values()
                for metadata in member.protocols.values()
                for topic in read_topics(metadata)
            )
        except CorruptDataError:
            return None
