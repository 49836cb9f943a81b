"""All groups of the broker and their timers: finds or makes the group a request names and passes it on.

A group is of the classic or of the consumer protocol. One without members changes to the protocol of whoever joins; one
with members as `migration` says.
Members stay when the coordinator starts again or moves: groups are in its log. The control thread owns it; it calls
`on_time` at `next_deadline_ms`. A group that is empty and has no committed offsets stays until the next call of
`forget_unused`. Source: Kafka, GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator import migration
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup, HeartbeatResult
from kafkaprod.broker.coordinator.consumer_groups import ConsumerGroups
from kafkaprod.broker.coordinator.consumer_member import JOIN_EPOCH, ConsumerHeartbeat
from kafkaprod.broker.coordinator.group import Group, GroupState
from kafkaprod.broker.coordinator.group_timers import GroupTimers
from kafkaprod.broker.coordinator.member import (
    GroupConfig,
    JoinAttempt,
    JoinReply,
    JoinResult,
    SyncAttempt,
    SyncReply,
    SyncResult,
    is_no_group_id,
)
from kafkaprod.broker.coordinator.saved_groups import SavedGroups
from kafkaprod.protocol.error_codes import ErrorCode

_FIRST_COMMIT_VERSION_OF_CONSUMERS = 9


class GroupCoordinator:
    """See the module docstring.

    Args:
        config: The configuration of the classic groups.
        has_offsets: Whether offsets are committed for a group id; such a group outlives its members.
        consumers: The groups of the consumer protocol.
        saved: The classic groups that are written; they are taken over.
        now_ms: Measures the sessions of their members.
    """

    def __init__(
        self,
        config: GroupConfig,
        has_offsets: Callable[[str], bool],
        consumers: ConsumerGroups,
        saved: SavedGroups,
        now_ms: int,
    ) -> None:
        self._config = config
        self._has_offsets = has_offsets
        self._consumers = consumers
        self._saved = saved
        self._groups: dict[str, Group] = {}  # the classic ones
        self._timers = GroupTimers()
        consumers.max_classic_size = config.max_size
        consumers.on_downgrade = self._downgrade
        for group in saved.read_all(config, now_ms):
            self._schedule(self._adopt(group))

    def set_config(self, config: GroupConfig) -> None:
        """Change the options of the classic groups; what they wait for now is not changed."""
        self._config = config
        self._consumers.max_classic_size = config.max_size
        for group in self._groups.values():
            group.config = config

    def get(self, group_id: str) -> Group | None:
        """The classic group; one known by its committed offsets only is made on the way, Empty."""
        group = self._groups.get(group_id)
        if group is None and self._consumers.get(group_id) is None and self._has_offsets(group_id):
            group = self._adopt(Group(group_id, self._config))
        return group

    def get_consumer(self, group_id: str) -> ConsumerGroup | None:
        """The group of the consumer protocol."""
        return self._consumers.get(group_id)

    def list_groups(self, ids_with_offsets: Collection[str]) -> list[Group | ConsumerGroup]:
        """All groups, those with nothing but committed offsets included."""
        known = {*self._groups, *ids_with_offsets}
        classic = [group for group in map(self.get, known) if group is not None]
        return sorted([*classic, *self._consumers.all()], key=lambda group: group.group_id)

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """The topics that the members of a group are subscribed to; None if it has members that are no consumers.

        Raises:
            RequestRefusedError: GROUP_ID_NOT_FOUND, there is no such group.
        """
        consumer_group = self._consumers.get(group_id)
        if consumer_group is not None:
            return consumer_group.subscribed_topics()
        group = self.get(group_id)
        if group is None:
            raise RequestRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        subscribed = group.subscribed_topics()
        return frozenset() if subscribed is None and group.state is GroupState.EMPTY else subscribed

    def consumer_heartbeat(self, beat: ConsumerHeartbeat, now_ms: int) -> HeartbeatResult:
        """ConsumerGroupHeartbeat. A first join makes the group, out of a classic one, too.

        Raises:
            RequestRefusedError: GROUP_ID_NOT_FOUND, it is a classic group that cannot be upgraded; or see
                `ConsumerGroups`.
        """
        group = self._groups.get(beat.group_id)
        if group is not None and beat.member_epoch != JOIN_EPOCH:
            raise RequestRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} is not a consumer group.")
        upgraded = None
        if group is not None and group.state is not GroupState.EMPTY:
            upgraded = self._consumers.new(beat.group_id)
            config = upgraded.config
            migration.check_upgrade(group, is_allowed=config.allows_upgrade, max_size=config.max_size)
            migration.upgrade(group, upgraded, self._consumers.topics, now_ms)
        result = self._consumers.heartbeat(beat, now_ms, upgraded)
        if group is not None:
            self._forget(beat.group_id)
            group.roster.dismiss(ErrorCode.REBALANCE_IN_PROGRESS)  # its members must join the new one
        return result

    def _downgrade(self, consumer_group: ConsumerGroup, now_ms: int, must_rebalance: bool) -> None:
        group = migration.downgrade(consumer_group, self._config, self._consumers.topics, now_ms)
        self._saved.save(self._adopt(group))
        if must_rebalance:
            group.rebalance(now_ms)
        self._schedule(group)

    def join(self, group_id: str, attempt: JoinAttempt, now_ms: int, reply: JoinReply) -> None:
        """JoinGroup. A first join makes the group."""
        consumer_group = self._consumers.get(group_id)
        if consumer_group is not None and consumer_group.members:
            limits = self._config
            if limits.min_session_timeout_ms <= attempt.session_timeout_ms <= limits.max_session_timeout_ms:
                reply(self._consumers.classic_join(group_id, attempt, now_ms))
            else:
                reply(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, attempt.member_id))
            return
        if consumer_group is not None:
            error = self._consumers.delete(group_id)
            if error is not ErrorCode.NONE:
                reply(JoinResult(error, attempt.member_id))
                return
        group = self.get(group_id)
        if is_no_group_id(group_id):
            reply(JoinResult(ErrorCode.INVALID_GROUP_ID, attempt.member_id))
        elif group is None and attempt.member_id:
            reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, attempt.member_id))
        else:
            is_new = group is None
            if group is None:
                group = self._adopt(Group(group_id, self._config))
            group.join(attempt, now_ms, reply)
            self._schedule(group)
            if is_new and self._is_unused(group):
                self._forget(group_id)  # the join was refused

    def abandon_join(self, group_id: str, reply: JoinReply, now_ms: int) -> None:
        """Drop the join that `reply` would answer: the client's connection is closed."""
        group = self._groups.get(group_id)
        if group is not None:
            group.abandon_join(reply, now_ms)
            self._schedule(group)

    def sync(self, group_id: str, attempt: SyncAttempt, now_ms: int, reply: SyncReply) -> None:
        """SyncGroup."""
        if self._consumers.get(group_id) is not None:
            reply(self._consumers.classic_sync(group_id, attempt, now_ms))
            return
        group = self.get(group_id)
        if group is None:
            reply(SyncResult(_unknown_group_error(group_id)))
            return
        group.sync(attempt, now_ms, reply)
        self._schedule(group)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int) -> int:
        """Heartbeat."""
        if self._consumers.get(group_id) is not None:
            return self._consumers.classic_heartbeat(group_id, member_id, instance_id, generation_id, now_ms)
        group = self.get(group_id)
        if group is None:
            return _unknown_group_error(group_id)
        return group.heartbeat(member_id, instance_id, generation_id, now_ms)

    def leave(self, group_id: str, member_id: str, instance_id: str | None, now_ms: int) -> int:
        """LeaveGroup of one member; of a consumer group an administrator removes static members with it."""
        if self._consumers.get(group_id) is not None:
            return self._consumers.classic_leave(group_id, member_id, instance_id, now_ms)
        group = self.get(group_id)
        if group is None:
            return _unknown_group_error(group_id)
        error = group.leave(member_id, instance_id, now_ms)
        self._schedule(group)
        return error

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int, version: int
    ) -> ErrorCode:
        """Whether the sender may commit offsets; the first commit without a generation makes the group.

        `version` is OffsetCommit's: members of consumer groups need one whose errors they understand.
        """
        if is_no_group_id(group_id):
            return ErrorCode.INVALID_GROUP_ID
        consumer_group = self._consumers.get(group_id)
        if consumer_group is not None:
            if generation_id < 0 and not consumer_group.members:
                return ErrorCode.NONE
            error = consumer_group.check_member_epoch(member_id, generation_id)
            member = consumer_group.members.get(member_id)
            is_old = member is not None and member.classic is None and version < _FIRST_COMMIT_VERSION_OF_CONSUMERS
            return ErrorCode.UNSUPPORTED_VERSION if is_old else error
        group = self.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return group.check_commit(member_id, instance_id, generation_id, now_ms)

    def check_transactional_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Whether the sender may commit offsets in a transaction; without a member any classic group may be named."""
        consumer_group = self._consumers.get(group_id)
        if consumer_group is not None:
            if generation_id < 0 and not consumer_group.members:
                return ErrorCode.NONE
            error = consumer_group.check_member_epoch(member_id, generation_id)
            return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error
        group = self.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return group.check_transactional_commit(member_id, instance_id, generation_id, now_ms)

    def check_offset_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may read offsets: any but a member of a consumer group in another epoch than its own."""
        consumer_group = self._consumers.get(group_id)
        if consumer_group is None or (member_id is None and member_epoch < 0):
            return ErrorCode.NONE
        return consumer_group.check_member_epoch(member_id or "", member_epoch)

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group; its offsets are the caller's to delete."""
        if self._consumers.get(group_id) is not None:
            return self._consumers.delete(group_id)
        group = self.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = ErrorCode.NONE if group.state is not GroupState.EMPTY else self._saved.remove(group_id)
        if error is ErrorCode.NONE:
            error = group.delete()
        if error is ErrorCode.NONE:
            self._forget(group_id)
        return error

    def dismiss(self) -> None:
        """Answer all calls that wait with NOT_COORDINATOR: another broker is the coordinator."""
        for group in self._groups.values():
            group.roster.dismiss(ErrorCode.NOT_COORDINATOR)

    def forget_unused(self) -> None:
        """Forget groups without members and committed offsets (Kafka: every offsets.retention.check.interval.ms)."""
        for group in list(self._groups.values()):
            if self._is_unused(group):
                self._forget(group.group_id)
        for consumer_group in self._consumers.all():
            if not consumer_group.members and not self._has_offsets(consumer_group.group_id):
                self._consumers.delete(consumer_group.group_id)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` must be called next; may be too early, never too late."""
        deadlines = (self._timers.next_deadline_ms(), self._consumers.next_deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """Let the groups do what is due."""
        for group_id in self._timers.due(now_ms):
            group = self._groups[group_id]
            group.on_time(now_ms)
            self._schedule(group)
        self._consumers.on_time(now_ms)

    def _adopt(self, group: Group) -> Group:
        """Add a group, which is written from now on when it changes."""
        group.save = self._saved.save
        self._groups[group.group_id] = group
        return group

    def _schedule(self, group: Group) -> None:
        self._timers.schedule(group.group_id, group.next_deadline_ms())

    def _is_unused(self, group: Group) -> bool:
        is_empty = group.state is GroupState.EMPTY and group.next_deadline_ms() is None  # no member id is pending
        return is_empty and not self._has_offsets(group.group_id)

    def _forget(self, group_id: str) -> None:
        self._saved.remove(group_id)
        self._groups.pop(group_id, None)
        self._timers.forget(group_id)


def _unknown_group_error(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
