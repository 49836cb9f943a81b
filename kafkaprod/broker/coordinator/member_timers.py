"""When members of a consumer group are late: with a sign of life, or a step of a rebalance. No clock; one thread."""

from __future__ import annotations

from kafkaprod.broker.coordinator.consumer_member import ConsumerMember, MemberState


class MemberTimers:
    """The deadlines of one group's members.

    Each has one for its session. One that must give up partitions, join again or sync has another for that: a member of
    the consumer protocol while it must revoke, one of the classic protocol from REBALANCE_IN_PROGRESS to its join, and
    to its sync.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, int] = {}

    def keep_session(self, member: ConsumerMember, now_ms: int, timeout_ms: int) -> None:
        """Begin the member's session again; `timeout_ms` is the group's, of the consumer protocol."""
        classic = member.classic
        self._sessions[member.member_id] = now_ms + (timeout_ms if classic is None else classic.session_timeout_ms)

    def await_rebalance(self, member: ConsumerMember, now_ms: int) -> None:
        """Wait for the member's next step, for its rebalance timeout; a wait that has begun is not prolonged."""
        self._rebalances.setdefault(member.member_id, now_ms + member.rebalance_timeout_ms)

    def end_rebalance(self, member: ConsumerMember) -> None:
        """The member has made the step."""
        self._rebalances.pop(member.member_id, None)

    def watch_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        """Wait as long as the member may take to give up partitions."""
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.await_rebalance(member, now_ms)
        else:
            self.end_rebalance(member)

    def forget(self, member: ConsumerMember) -> None:
        """Drop both deadlines."""
        self._sessions.pop(member.member_id, None)
        self._rebalances.pop(member.member_id, None)

    def next_deadline_ms(self) -> int | None:
        """The earliest one, None if there is none."""
        return min((*self._sessions.values(), *self._rebalances.values()), default=None)

    def late(self, now_ms: int) -> set[str]:
        """Return the ids of the members that are too late."""
        both = (self._sessions, self._rebalances)
        return {member_id for deadlines in both for member_id, deadline in deadlines.items() if deadline <= now_ms}
