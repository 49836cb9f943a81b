"""Members of a group and what a group answers them. Values only; the rules are in `group`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.protocol.error_codes import ErrorCode

NO_GENERATION = -1


class GroupConfig(NamedTuple):
    """The group options of a broker, under Kafka's names (`group.` left out).

    Attributes:
        min_session_timeout_ms: Shortest session timeout that a member may have.
        max_session_timeout_ms: Longest one.
        initial_rebalance_delay_ms: How long the first join of an empty group waits for others; 0 in tests.
        max_size: Most members of a group.
        max_metadata_bytes: Most metadata of one member, all protocols together.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 10_000
    max_metadata_bytes: int = 1024 * 1024


MAX_NAMES_CHARS: Final = 256 * 1_024
"""What a group of the new protocol keeps of the topics that a member names."""


def is_no_group_id(group_id: str) -> bool:
    """Whether no group can have that id."""
    return not 0 < len(group_id) <= MAX_ID_CHARS


class JoinAttempt(NamedTuple):
    """A JoinGroup request.

    Attributes:
        member_id: Empty for a first join.
        instance_id: The instance id of a static member (KIP-345), else None.
        protocols: Name -> the member's metadata, most preferred first.
        needs_known_id: A first join is answered with an id and must be repeated with it (v4+, KIP-394).
        can_skip_assignment: Understands SkipAssignment (v9+, KIP-814).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    needs_known_id: bool
    can_skip_assignment: bool


class JoinedMember(NamedTuple):
    """A member in the answer to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a join. `members` is empty for all but the leader."""

    error_code: int
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncAttempt(NamedTuple):
    """A SyncGroup request; `assignments` comes from the leader, empty from all others."""

    member_id: str
    instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncResult(NamedTuple):
    """The answer to a sync."""

    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinResult], None]
"""Called exactly once, now or when the join phase ends; must not call back into the group."""

SyncReply = Callable[[SyncResult], None]
"""Called exactly once, now or when the leader's assignment is there; must not call back into the group."""


@dataclass(slots=True)
class Member:
    """One member. While a join or sync of it is held it counts as alive, whatever `session_deadline_ms` says.

    Attributes:
        has_joined: A join of it was answered without an error.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    session_deadline_ms: int
    assignment: bytes = b""
    held_join: JoinReply | None = field(default=None, repr=False)
    held_sync: SyncReply | None = field(default=None, repr=False)
    has_joined: bool = False

    @property
    def is_waiting(self) -> bool:
        """The broker owes it an answer."""
        return self.held_join is not None or self.held_sync is not None

    def keep_alive(self, now_ms: int) -> None:
        """Start the session timeout again."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def has_same_protocols(self, protocols: Mapping[str, bytes]) -> bool:
        """Same names, order and metadata as at the last join."""
        return list(self.protocols.items()) == list(protocols.items())

    def update(self, attempt: JoinAttempt) -> None:
        """Take over what a later join says."""
        self.client_id, self.client_host = attempt.client_id, attempt.client_host
        self.session_timeout_ms = attempt.session_timeout_ms
        self.rebalance_timeout_ms = attempt.rebalance_timeout_ms
        self.protocols = dict(attempt.protocols)

    def hold_join(self, reply: JoinReply) -> None:
        """Keep a join to be answered; refuse an earlier one of the same member (its connection is lost)."""
        self.answer_join(JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, self.member_id))
        self.held_join = reply

    def hold_sync(self, reply: SyncReply) -> None:
        """Keep a sync to be answered; refuse an earlier one."""
        self.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self.held_sync = reply

    def answer_join(self, result: JoinResult) -> None:
        """Answer the held join, if there is one."""
        reply, self.held_join = self.held_join, None
        self.has_joined = self.has_joined or (reply is not None and result.error_code == ErrorCode.NONE)
        if reply is not None:
            reply(result)

    def answer_sync(self, result: SyncResult) -> None:
        """Answer the held sync, if there is one."""
        reply, self.held_sync = self.held_sync, None
        if reply is not None:
            reply(result)
