"""All groups of the broker and their timers: finds or makes the group a request names and passes it on.

The control thread owns it; it calls `on_time` at `next_deadline_ms`. A group that is empty and has no committed
offsets stays until the next call of `forget_unused`. Source: Kafka, GroupMetadataManager.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection

from kafkaprod.broker.coordinator.group import Group, GroupState
from kafkaprod.broker.coordinator.member import (
    GroupConfig,
    JoinAttempt,
    JoinReply,
    JoinResult,
    SyncAttempt,
    SyncReply,
    SyncResult,
)
from kafkaprod.protocol.error_codes import ErrorCode


class GroupCoordinator:
    """See the module docstring.

    Args:
        config: of all groups.
        has_offsets: whether offsets are committed for a group id; such a group outlives its members.
    """

    def __init__(self, config: GroupConfig, has_offsets: Callable[[str], bool]) -> None:
        self._config = config
        self._has_offsets = has_offsets
        self._groups: dict[str, Group] = {}
        self._deadlines: list[tuple[int, str]] = []  # heap; at most one entry a group that counts, see _scheduled
        self._scheduled: dict[str, int] = {}  # group id -> its deadline in the heap; others there are stale

    def set_config(self, config: GroupConfig) -> None:
        """Change the options of all groups; what they wait for now is not changed."""
        self._config = config
        for group in self._groups.values():
            group.config = config

    def get(self, group_id: str) -> Group | None:
        """The group; one known by its committed offsets only is made on the way, Empty."""
        group = self._groups.get(group_id)
        if group is None and self._has_offsets(group_id):
            group = self._groups[group_id] = Group(group_id, self._config)
        return group

    def list_groups(self, ids_with_offsets: Collection[str]) -> list[Group]:
        """All groups, those with nothing but committed offsets included."""
        known = {*self._groups, *ids_with_offsets}
        return [group for group in map(self.get, sorted(known)) if group is not None]

    def join(self, group_id: str, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        """JoinGroup. A first join makes the group."""
        group = self.get(group_id)
        if not group_id:
            reply(JoinResult(ErrorCode.INVALID_GROUP_ID, attempt.member_id))
        elif group is None and attempt.member_id:
            reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, attempt.member_id))
        else:
            is_new = group is None
            if group is None:
                group = self._groups[group_id] = Group(group_id, self._config)
            group.join(attempt, now_ms, reply)
            self._reschedule(group)
            if is_new and self._is_unused(group):
                self._forget(group_id)  # the join was refused

    def abandon_join(self, group_id: str, reply: JoinReply, now_ms: int) -> None:
        """Drop the join that `reply` would answer: the client's connection is closed."""
        group = self._groups.get(group_id)
        if group is not None:
            group.abandon_join(reply, now_ms)
            self._reschedule(group)

    def sync(self, group_id: str, attempt: SyncAttempt, now_ms: int, reply: SyncReply) -> None:
        """SyncGroup."""
        group = self.get(group_id)
        if group is None:
            reply(SyncResult(_unknown_group_error(group_id)))
            return
        group.sync(attempt, now_ms, reply)
        self._reschedule(group)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat."""
        group = self.get(group_id)
        if group is None:
            return _unknown_group_error(group_id)
        return group.heartbeat(member_id, instance_id, generation_id, now_ms)

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        """LeaveGroup of one member."""
        group = self.get(group_id)
        if group is None:
            return _unknown_group_error(group_id)
        error = group.leave(member_id, instance_id, now_ms)
        self._reschedule(group)
        return error

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Whether the sender may commit offsets; the first commit without a generation makes the group."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation_id < 0 and not member_id else ErrorCode.ILLEGAL_GENERATION
        return group.check_commit(member_id, instance_id, generation_id, now_ms)

    def check_transactional_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Whether the sender may commit offsets in a transaction; without a member any group may be named."""
        group = self.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return group.check_transactional_commit(member_id, instance_id, generation_id, now_ms)

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group; its offsets are the caller's to delete."""
        group = self.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = group.delete()
        if error is ErrorCode.NONE:
            self._forget(group_id)
        return error

    def forget_unused(self) -> None:
        """Forget groups without members and committed offsets (Kafka: every offsets.retention.check.interval.ms)."""
        for group in list(self._groups.values()):
            if self._is_unused(group):
                self._forget(group.group_id)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is to be called next; may be too early, never too late."""
        return self._deadlines[0][0] if self._deadlines else None

    def on_time(self, now_ms: int) -> None:
        """Let the groups do what is due."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, group_id = heapq.heappop(self._deadlines)
            if self._scheduled.get(group_id) != deadline_ms:
                continue
            del self._scheduled[group_id]
            group = self._groups[group_id]
            group.on_time(now_ms)
            self._reschedule(group)

    def _reschedule(self, group: Group) -> None:
        """Put the group's next deadline on the heap unless an earlier entry will look at it anyway."""
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None:
            return
        scheduled_ms = self._scheduled.get(group.group_id)
        if scheduled_ms is None or deadline_ms < scheduled_ms:
            self._scheduled[group.group_id] = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, group.group_id))

    def _is_unused(self, group: Group) -> bool:
        is_empty = group.state is GroupState.EMPTY and group.next_deadline_ms() is None  # no member id is pending
        return is_empty and not self._has_offsets(group.group_id)

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._scheduled.pop(group_id, None)


def _unknown_group_error(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
