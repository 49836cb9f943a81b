"""All groups of the consumer protocol and their timers: checks requests, finds or makes the group, keeps its records.

A change is written to `__consumer_offsets` before it is answered; if that fails, the group is made again of what is
written. The control thread owns it. Source: Kafka, GroupMetadataManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator import classic_calls, consumer_records
from kafkaprod.broker.coordinator.assignors import ASSIGNORS
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup, HeartbeatResult
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.consumer_member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerHeartbeat
from kafkaprod.broker.coordinator.group_timers import GroupTimers
from kafkaprod.broker.coordinator.member import (
    MAX_NAMES_CHARS,
    JoinAttempt,
    JoinResult,
    SyncAttempt,
    SyncResult,
)
from kafkaprod.broker.coordinator.regex_subscriptions import Topics
from kafkaprod.broker.coordinator.topic_regex import TopicRegex
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.internal_records import KeyValue

logger = logging.getLogger(__name__)

GroupRecords = Mapping[str, Mapping[bytes, bytes]]
WriteRecords = Callable[[Sequence[KeyValue]], None]


class ConsumerGroups:
    """See the module docstring.

    Attributes:
        max_classic_size: Most members of a group that is downgraded.
        on_downgrade: Called with a group that has become a classic one, the time, and whether its
            members must join again.
    """

    def __init__(
        self,
        config_of: Callable[[str], ConsumerGroupConfig],
        topics: Callable[[], Topics],
        records: GroupRecords,
        write: WriteRecords,
        now_ms: int,
    ) -> None:
        """Make the groups that have records.

        Args:
            config_of: The options of a group.
            topics: All topics; the same object as long as nothing changes.
            records: The records of all groups, as they are written; by group id.
            write: Writes records, all or none; raises BrokerError.
            now_ms: Measures the timeouts of members.

        Raises:
            CorruptDataError: A record is damaged.
        """
        self._config_of = config_of
        self._topics = topics
        self._records = records
        self._write = write
        self._groups: dict[str, ConsumerGroup] = {}
        self._timers = GroupTimers()
        self._matched_topics: Topics = {}
        self._matches: dict[str, frozenset[str]] = {}  # regular expression -> those of `_matched_topics` that match
        self.max_classic_size = 0
        self.on_downgrade: Callable[[ConsumerGroup, int, bool], None] = _nothing
        for group_id in records:
            self._restore(group_id, now_ms)

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group."""
        return self._groups.get(group_id)

    def all(self) -> list[ConsumerGroup]:
        """All groups, by id."""
        return [self._groups[group_id] for group_id in sorted(self._groups)]

    @property
    def topics(self) -> Topics:
        """All topics."""
        return self._topics()

    def new(self, group_id: str) -> ConsumerGroup:
        """Return a group without members, for `heartbeat`."""
        return ConsumerGroup(group_id, self._config_of(group_id), self._match_topics)

    def heartbeat(self, beat: ConsumerHeartbeat, now_ms: int, upgraded: ConsumerGroup | None = None) -> HeartbeatResult:
        """ConsumerGroupHeartbeat of a request that `check` has passed. A first join makes the group.

        Args:
            beat: The request.
            now_ms: The time.
            upgraded: What a classic group of this id becomes.

        Raises:
            RequestRefusedError: See `ConsumerGroup`; GROUP_ID_NOT_FOUND, there is no such group;
                COORDINATOR_NOT_AVAILABLE, the disk refused. Nothing was changed.
        """
        group = self._groups.get(beat.group_id)
        is_new = group is None
        if group is None:
            if beat.member_epoch != JOIN_EPOCH:
                raise RequestRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {beat.group_id} not found.")
            group = self._groups[beat.group_id] = upgraded or self.new(beat.group_id)
        group.config = self._config_of(beat.group_id)
        try:
            result = group.leave(beat) if beat.member_epoch < 0 else group.heartbeat(beat, self._topics(), now_ms)
        except RequestRefusedError:
            if is_new:
                self._forget(beat.group_id)
            raise
        self._keep(group, now_ms)
        return result

    def classic_join(self, group_id: str, attempt: JoinAttempt, now_ms: int) -> JoinResult:
        """JoinGroup of a group with members."""
        group = self._groups[group_id]
        group.config = self._config_of(group_id)
        try:
            result = classic_calls.join(group, attempt, self._topics(), now_ms)
            self._keep(group, now_ms, is_join=True)
        except RequestRefusedError as refusal:
            return JoinResult(refusal.code, attempt.member_id)
        return result

    def classic_sync(self, group_id: str, attempt: SyncAttempt, now_ms: int) -> SyncResult:
        """SyncGroup."""
        group = self._groups[group_id]
        try:
            return classic_calls.sync(group, attempt, self._topics(), now_ms)
        except RequestRefusedError as refusal:
            return SyncResult(refusal.code)
        finally:
            self._timers.schedule(group_id, group.next_deadline_ms())

    def classic_heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """Heartbeat."""
        group = self._groups[group_id]
        try:
            error = classic_calls.heartbeat(group, member_id, instance_id, generation_id, now_ms)
        except RequestRefusedError as refusal:
            return refusal.code
        self._timers.schedule(group_id, group.next_deadline_ms())
        return error

    def classic_leave(self, group_id: str, member_id: str, instance_id: str | None, now_ms: int) -> int:
        """LeaveGroup of one member."""
        group = self._groups[group_id]
        try:
            classic_calls.leave(group, member_id, instance_id)
            self._keep(group, now_ms)
        except RequestRefusedError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group; its offsets are the caller's to delete."""
        if self._groups[group_id].members:
            return ErrorCode.NON_EMPTY_GROUP
        try:
            self._write(consumer_records.group_tombstones(group_id))
        except BrokerError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._forget(group_id)
        return ErrorCode.NONE

    def next_deadline_ms(self) -> int | None:
        """When `on_time` must be called next; may be too early, never too late."""
        return self._timers.next_deadline_ms()

    def on_time(self, now_ms: int) -> None:
        """Let the groups do what is due."""
        for group_id in self._timers.due(now_ms):
            group = self._groups[group_id]
            group.on_time(now_ms)
            try:
                self._keep(group, now_ms)
            except RequestRefusedError as error:
                logger.warning("members cannot be removed: %s", error)

    def _keep(self, group: ConsumerGroup, now_ms: int, *, is_join: bool = False) -> None:
        """Write what has changed; let a group go that must be downgraded."""
        changes = self._needed(group.group_id, group.take_changes())
        if changes:
            try:
                self._write(changes)
            except BrokerError as error:
                self._forget(group.group_id)
                if group.group_id in self._records:
                    self._restore(group.group_id, now_ms)
                raise RequestRefusedError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group.group_id} cannot be written: {error}"
                ) from error
        if self._is_to_downgrade(group):
            self._downgrade(group, now_ms, must_rebalance=not is_join)
        else:
            self._timers.schedule(group.group_id, group.next_deadline_ms())

    def _needed(self, group_id: str, changes: Sequence[KeyValue]) -> list[KeyValue]:
        """Leave out the tombstones of what is not written."""
        known = self._records.get(group_id, {})
        return [(key, value) for key, value in changes if value is not None or key in known]

    def _is_to_downgrade(self, group: ConsumerGroup) -> bool:
        members = group.members.values()
        is_classic = bool(members) and all(member.classic is not None for member in members)
        return is_classic and group.config.allows_downgrade and len(members) <= self.max_classic_size

    def _downgrade(self, group: ConsumerGroup, now_ms: int, *, must_rebalance: bool) -> None:
        """Remove the records and let the group go; if the disk refuses, the next change tries again."""
        group_id = group.group_id
        ordered = [
            record for member in group.members for record in consumer_records.member_tombstones(group_id, member)
        ]
        ordered += consumer_records.group_tombstones(group_id)
        others = self._records.get(group_id, {}).keys() - {key for key, _ in ordered}
        try:
            self._write([*((key, None) for key in others), *self._needed(group_id, ordered)])
        except BrokerError as error:
            logger.warning("group %r cannot be downgraded: %s", group_id, error)
            self._timers.schedule(group_id, group.next_deadline_ms())
            return
        self._forget(group_id)
        self.on_downgrade(group, now_ms, must_rebalance)

    def _restore(self, group_id: str, now_ms: int) -> None:
        group = self._groups[group_id] = self.new(group_id)
        group.restore(self._records[group_id], now_ms)
        self._timers.schedule(group_id, group.next_deadline_ms())

    def _match_topics(self, pattern: str, topics: Topics) -> frozenset[str]:
        """Return the names that match a regular expression of a client, internal topics included (as Kafka does).

        Raises:
            RequestRefusedError: INVALID_REGULAR_EXPRESSION, it is invalid.
        """
        if topics is not self._matched_topics:
            self._matched_topics, self._matches = topics, {}
        if pattern not in self._matches:
            try:
                self._matches[pattern] = TopicRegex(pattern).matching(topics)
            except ValueError as error:
                raise RequestRefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
        return self._matches[pattern]

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._timers.forget(group_id)


def _ids(beat: ConsumerHeartbeat) -> tuple[str, ...]:
    return beat.group_id, beat.member_id, beat.instance_id or "", beat.rack_id or ""


def check(beat: ConsumerHeartbeat, *, has_own_id: bool) -> None:
    """Refuse a heartbeat that can be in no group.

    Args:
        beat: The request.
        has_own_id: Clients make their member ids (KIP-1082).

    Raises:
        RequestRefusedError: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR for an unknown assignor.
    """
    problem = None
    if not beat.group_id:
        problem = "GroupId can't be empty."
    elif beat.instance_id == "":
        problem = "InstanceId can't be empty."
    elif beat.rack_id == "":
        problem = "RackId can't be empty."
    elif (longest := max(map(len, _ids(beat)))) > MAX_ID_CHARS:
        problem = f"An id of {longest} characters is longer than {MAX_ID_CHARS}."
    elif (total := sum(map(len, beat.topic_names or ()))) > MAX_NAMES_CHARS:
        problem = (
            f"The subscribed names have {total} characters, more than {MAX_NAMES_CHARS}: use a regular expression."
        )
    elif beat.member_epoch < STATIC_LEAVE_EPOCH:
        problem = "MemberEpoch is invalid."
    elif not beat.member_id and (has_own_id or beat.member_epoch != JOIN_EPOCH):
        problem = "MemberId can't be empty."
    elif beat.member_epoch == STATIC_LEAVE_EPOCH and beat.instance_id is None:
        problem = "InstanceId can't be null."
    elif beat.member_epoch == JOIN_EPOCH:
        problem = _why_not_join(beat)
    if problem is not None:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, problem)
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise RequestRefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _why_not_join(beat: ConsumerHeartbeat) -> str | None:
    if beat.rebalance_timeout_ms < 0:
        return "RebalanceTimeoutMs must be provided in first request."
    if beat.owned is None or beat.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if beat.topic_names is None and beat.topic_regex is None:
        return "SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
    return None


def _nothing(*_: object) -> None:
    """Takes the place of a call that is not needed."""
