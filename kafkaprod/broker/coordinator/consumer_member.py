r"""Members of a group of the consumer protocol, and the steps by which one reaches its target assignment.

    STABLE --target changed--> UNREVOKED_PARTITIONS --client has given them up--> STABLE
                          \                                             \
                           +--> UNRELEASED_PARTITIONS (others still own what it shall get) --> STABLE

A member first gives up what it shall lose, in its old epoch; then it enters the new epoch and is given what is free.
Values only, immutable. Source: KIP-848; Kafka, ConsumerGroupMember and CurrentAssignmentBuilder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Self

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
JOIN_EPOCH = 0


class TopicIdPartition(NamedTuple):
    """A partition of a topic that is named by its id."""

    topic_id: uuid.UUID
    partition: int


Assignment = frozenset[TopicIdPartition]

NOTHING: Assignment = frozenset()


class MemberState(IntEnum):
    """How far a member is on the way to its target; the numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicMetadata(NamedTuple):
    """What a member that uses the classic protocol brought with its JoinGroup.

    Attributes:
        protocols: Name and metadata, the most preferred first.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


def sees_all(_: str) -> bool:
    """Let a member see every topic."""
    return True


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. None, or -1 for the timeout: as in the last one.

    Attributes:
        member_epoch: 0 joins, -1 leaves, -2 leaves for a restart as a static member.
        owned: The partitions that the member holds.
        classic: The arguments of a JoinGroup request; None for the consumer protocol.
        may_see: Whether a regular expression of the member may match a topic: the client may describe it.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    classic: ClassicMetadata | None = None
    may_see: Callable[[str], bool] = sees_all

    @property
    def is_full(self) -> bool:
        """The member gives its whole state, and gets its whole assignment."""
        is_complete = self.rebalance_timeout_ms != -1 and self.topic_names is not None and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or is_complete


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member.

    Attributes:
        epoch: The epoch of the assignment it has; -2 while a static member is away.
        previous_epoch: The one before; accepted once more, since the answer with the new one may be lost.
        assigned: What it may use.
        revoking: What it still holds and must give up.
        classic: Set if it uses the classic protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    revoking: Assignment = NOTHING
    classic: ClassicMetadata | None = None

    def with_wishes(self, beat: ConsumerHeartbeat) -> Self:
        """Return the member with what a heartbeat changes."""
        return replace(
            self,
            instance_id=self.instance_id if beat.instance_id is None else beat.instance_id,
            rack_id=self.rack_id if beat.rack_id is None else beat.rack_id,
            client_id=beat.client_id,
            client_host=beat.client_host,
            topic_names=self.topic_names if beat.topic_names is None else beat.topic_names,
            topic_regex=self.topic_regex if beat.topic_regex is None else beat.topic_regex,
            rebalance_timeout_ms=beat.rebalance_timeout_ms
            if beat.rebalance_timeout_ms != -1
            else self.rebalance_timeout_ms,
            assignor=self.assignor if beat.assignor is None else beat.assignor,
            classic=beat.classic,
        )

    def has_same_subscription(self, other: ConsumerMember) -> bool:
        """Whether both want the same topics."""
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether it has the assignment of this epoch, all of it and no more."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def accepts_epoch(self, epoch: int, owned: Assignment | None) -> bool:
        """Whether a request with this epoch is current; the previous epoch is, if the member owns nothing else."""
        is_previous = epoch == self.previous_epoch and owned is not None and owned <= self.assigned
        return epoch == self.epoch or (epoch < self.epoch and is_previous)

    def reconciled(
        self,
        target_epoch: int,
        target: Assignment,
        owned: Assignment | None,
        is_free: Callable[[TopicIdPartition], bool],
    ) -> Self:
        """Return the member one step nearer to its target.

        Args:
            target_epoch: Epoch of the target.
            target: What it shall have in the end.
            owned: What it says that it holds; None if it does not say.
            is_free: Whether no other member holds a partition.
        """
        if self.is_reconciled(target_epoch):
            return self
        epoch = self.epoch
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & self.revoking:
                return self
            epoch += 1  # Kafka's rule; the epoch of the target replaces it unless there is more to give up
        kept = self.assigned & target
        revoking = self.assigned - target
        if revoking and (owned is None or owned & revoking):
            return self._moved(MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoking)
        missing = target - kept
        free = frozenset(partition for partition in missing if is_free(partition))
        state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
        return self._moved(state, target_epoch, kept | free, NOTHING)

    def _moved(self, state: MemberState, epoch: int, assigned: Assignment, revoking: Assignment) -> Self:
        return replace(self, state=state, epoch=epoch, previous_epoch=self.epoch, assigned=assigned, revoking=revoking)
