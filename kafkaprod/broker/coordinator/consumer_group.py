"""One group of the consumer protocol (KIP-848) as a state machine.

    group epoch     counts changes of members, subscriptions and topics
    target epoch    the group epoch for which the assignor was asked last; behind it: Assigning
    member epoch    the target that a member has reached; behind the target: Reconciling; otherwise Stable

Each heartbeat makes a new target if one is due, and takes its member one step nearer to it. Members of the classic
protocol come by `classic_calls`: a JoinGroup of theirs is a heartbeat with epoch 0. Pure: no I/O, no clock.
What a call changes is collected as records: `take_changes`; a group is made again of its records (`restore`). Whoever
owns it calls `on_time` at `next_deadline_ms`. One thread. Source: Kafka, GroupMetadataManager and ConsumerGroup.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator import consumer_records
from kafkaprod.broker.coordinator.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.coordinator.consumer_member import (
    JOIN_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    Assignment,
    ConsumerHeartbeat,
    ConsumerMember,
    TopicIdPartition,
)
from kafkaprod.broker.coordinator.member_timers import MemberTimers
from kafkaprod.broker.coordinator.regex_subscriptions import MatchTopics, RegexSubscriptions, Topics
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.internal_records import KeyValue


class HeartbeatResult(NamedTuple):
    """The answer to a heartbeat; `assignment` is None if it is as it was."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


class ConsumerGroup:
    """See the module docstring.

    Attributes:
        config: May be replaced.
        epoch: The epoch of the group.
        target_epoch: The epoch of the targets.
        members: By id.
        targets: What each member shall get.
        timers: Deadlines of the members.
    """

    def __init__(self, group_id: str, config: ConsumerGroupConfig, match_topics: MatchTopics) -> None:
        self.group_id = group_id
        self.config = config
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self._regexes = RegexSubscriptions(group_id, match_topics)
        self._topics: Topics | None = None  # those `_topics_hash` was last checked with
        self._topics_hash = 0  # of the topics the group is subscribed to
        self._owners: dict[TopicIdPartition, str] = {}
        self._static_ids: dict[str, str] = {}  # instance id -> member id
        self.timers = MemberTimers()
        self._changes: dict[bytes, bytes | None] = {}

    def restore(self, records: Mapping[bytes, bytes], now_ms: int) -> None:
        """Take over what the records of the group say, as a new group; the timeouts of the members begin again.

        Raises:
            CorruptDataError: A record is damaged.
        """
        image = consumer_records.read_group(records)
        self.epoch, self._topics_hash, self.target_epoch = image.epoch, image.metadata_hash, image.target_epoch
        self.targets = {member_id: target for member_id, target in image.targets.items() if member_id in image.members}
        self._regexes.restore(image.regexes)
        for member in image.members.values():
            self._place(member)
            self.keep_session(member, now_ms)
            self.timers.watch_revocation(member, now_ms)

    def take_over(self, epoch: int, members: Iterable[ConsumerMember], now_ms: int) -> None:
        """Begin, as a new group, with members that have their targets: those of a classic group."""
        self.epoch = self.target_epoch = epoch
        for member in members:
            self._put(member)
            self._set_target(member.member_id, member.assigned)
            self.keep_session(member, now_ms)
        self._change(consumer_records.group_record(self.group_id, epoch, self._topics_hash))
        self._change(consumer_records.target_epoch_record(self.group_id, epoch))

    # -- what it looks like --------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The state by the name ConsumerGroupDescribe shows."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_stable = all(member.is_reconciled(self.target_epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members want."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return wanted.most_common(1)[0][0] if wanted else DEFAULT_ASSIGNOR

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names that members are subscribed to."""
        return frozenset().union(*(self._names_of(member) for member in self.members.values()))

    def _names_of(self, member: ConsumerMember) -> frozenset[str]:
        return member.topic_names | self._regexes.names(member.topic_regex)

    def check_member_epoch(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether this is a member in its present epoch, as commits and fetches of offsets want it."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == member_epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def take_changes(self) -> list[KeyValue]:
        """Return the records of all changes since the last call, in order."""
        changes, self._changes = self._changes, {}
        return list(changes.items())

    # -- requests ------------------------------------------------------------------------------------------------------

    def heartbeat(self, beat: ConsumerHeartbeat, topics: Topics, now_ms: int) -> HeartbeatResult:
        """ConsumerGroupHeartbeat of a member that joins or stays.

        Raises:
            RequestRefusedError: UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH,
                UNRELEASED_INSTANCE_ID: it is not, or cannot become, a member; INVALID_REGULAR_EXPRESSION, its regular
                expression is invalid. Nothing was changed.
        """
        member = self._joining(beat) if beat.member_epoch == JOIN_EPOCH else self._known(beat)
        updated = member.with_wishes(beat)
        has_new_names = self._refresh_regex(updated.topic_regex, topics, beat.may_see, now_ms)
        old_id = self._static_ids.get(member.instance_id or "", member.member_id)
        if old_id != member.member_id:
            self._replace(self.members[old_id], member)
        is_new = member.member_id not in self.members
        self._put(updated)
        if is_new or not updated.has_same_subscription(member):
            self._drop_regexes()
            self._check_topics(topics)
            self._bump_epoch()
        elif (self._topics is not topics or has_new_names) and self._check_topics(topics):
            self._bump_epoch()
        if self.epoch > self.target_epoch:
            self._assign(topics)
        target = self.targets.get(updated.member_id, NOTHING)
        updated = updated.reconciled(self.target_epoch, target, beat.owned, self._is_free_for(updated.member_id))
        self._put(updated)
        self.keep_session(updated, now_ms)
        if updated.classic is None:
            self.timers.watch_revocation(updated, now_ms)
        else:
            self.timers.end_rebalance(updated)
            self.timers.await_rebalance(updated, now_ms)  # it must sync in time
        is_shown = beat.is_full or updated.assigned != member.assigned
        return HeartbeatResult(
            updated.member_id, updated.epoch, self.config.heartbeat_interval_ms, updated.assigned if is_shown else None
        )

    def leave(self, beat: ConsumerHeartbeat) -> HeartbeatResult:
        """ConsumerGroupHeartbeat of a member that leaves; a static one that comes back soon keeps what it has.

        Raises:
            RequestRefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID: it is no member. Nothing was changed.
        """
        member = self.find(beat.member_id, beat.instance_id)
        if beat.member_epoch == STATIC_LEAVE_EPOCH:
            self._put(replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING))
            self.timers.end_rebalance(member)
        else:
            self.fence(member)
        return HeartbeatResult(member.member_id, beat.member_epoch, 0, None)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `on_time` must be called next, None if nothing waits for time."""
        return self.timers.next_deadline_ms()

    def on_time(self, now_ms: int) -> None:
        """Remove members whose session has ended, and those that did not give partitions up, or join, in time."""
        for member_id in sorted(self.timers.late(now_ms)):
            self.fence(self.members[member_id])

    def keep_session(self, member: ConsumerMember, now_ms: int) -> None:
        """Begin the member's session again."""
        self.timers.keep_session(member, now_ms, self.config.session_timeout_ms)

    # -- who asks ------------------------------------------------------------------------------------------------------

    def _joining(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member as it is when it joins: a new one, or a known one that joins again.

        A member that joins again keeps its epoch and its partitions, and has given up what it had to give up: it owns
        nothing (KAFKA-19233). A static one may do so under its member id only.
        """
        instance_id = beat.instance_id
        static_id = None if instance_id is None else self._static_ids.get(instance_id)
        if static_id is not None:
            old = self.members[static_id]
            is_away = old.epoch == STATIC_LEAVE_EPOCH or beat.classic is not None or old.classic is not None
            if not is_away and static_id != beat.member_id:
                raise RequestRefusedError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {beat.member_id} with instance id {instance_id} cannot join the group because the "
                    f"instance id is owned by {static_id} member.",
                )
            if old.epoch == STATIC_LEAVE_EPOCH or static_id != beat.member_id:
                return replace(old, member_id=beat.member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        known = self.members.get(beat.member_id)
        if known is not None:
            return known
        self.check_room(beat.member_id)
        return ConsumerMember(beat.member_id, instance_id=instance_id)

    def check_room(self, member_id: str) -> None:
        """Raise RequestRefusedError GROUP_MAX_SIZE_REACHED if the group is full and this is no member."""
        if len(self.members) >= self.config.max_size and member_id not in self.members:
            raise RequestRefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.config.max_size} members.",
            )

    def _known(self, beat: ConsumerHeartbeat) -> ConsumerMember:
        member = self.find(beat.member_id, beat.instance_id)
        if not member.accepts_epoch(beat.member_epoch, beat.owned):
            relation = "greater" if beat.member_epoch > member.epoch else "smaller"
            raise RequestRefusedError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {relation} member epoch ({beat.member_epoch}) than the one known by "
                f"the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member.

        Raises:
            RequestRefusedError: UNKNOWN_MEMBER_ID, there is none; FENCED_INSTANCE_ID, another has the instance id.
        """
        if instance_id is not None:
            static = self.static_member(instance_id)
            if static.member_id != member_id:
                problem = f"Static member {member_id} with instance id {instance_id} was fenced by member "
                raise RequestRefusedError(ErrorCode.FENCED_INSTANCE_ID, f"{problem}{static.member_id}.")
            return static
        member = self.members.get(member_id)
        if member is None:
            raise RequestRefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerMember:
        """Return a static member; raise RequestRefusedError UNKNOWN_MEMBER_ID if there is none."""
        known_id = self._static_ids.get(instance_id)
        if known_id is None:
            raise RequestRefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown in group {self.group_id}."
            )
        return self.members[known_id]

    # -- changes -------------------------------------------------------------------------------------------------------

    def _put(self, member: ConsumerMember) -> None:
        """Set a member, and the records that differ."""
        old = self.members.get(member.member_id)
        old_record = None if old is None else consumer_records.member_record(self.group_id, old)
        wishes = consumer_records.member_record(self.group_id, member)
        if old_record != wishes:
            self._change(wishes)
        current = consumer_records.current_record(self.group_id, member)
        if old is None or consumer_records.current_record(self.group_id, old) != current:
            self._change(current)
        self._place(member)

    def _place(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
            self._forget_instance(old)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        self._owners.update(dict.fromkeys(member.assigned | member.revoking, member.member_id))

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.assigned | member.revoking:
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self._static_ids.get(member.instance_id) == member.member_id:
            del self._static_ids[member.instance_id]

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether others hold partitions that the member shall get."""
        missing = self.targets.get(member.member_id, NOTHING) - member.assigned
        return not all(map(self._is_free_for(member.member_id), missing))

    def _is_free_for(self, member_id: str) -> Callable[[TopicIdPartition], bool]:
        return lambda partition: self._owners.get(partition, member_id) == member_id

    def _remove(self, member: ConsumerMember) -> None:
        self._release(member)
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        self.timers.forget(member)
        self._forget_instance(member)
        for tombstone in consumer_records.member_tombstones(self.group_id, member.member_id):
            self._change(tombstone)

    def fence(self, member: ConsumerMember) -> None:
        """Remove a member for good; the next heartbeat of another one makes a new target."""
        self._remove(member)
        self._drop_regexes()
        if self._topics is not None:
            self._check_topics(self._topics)
        self._bump_epoch()

    def _replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Give a static member's place to its new self."""
        target = self.targets.get(old.member_id, NOTHING)
        self._remove(old)
        self._put(new)
        self._set_target(new.member_id, target)

    def _set_target(self, member_id: str, target: Assignment) -> None:
        self.targets[member_id] = target
        self._change(consumer_records.target_record(self.group_id, member_id, target))

    def _refresh_regex(self, regex: str, topics: Topics, may_see: Callable[[str], bool], now_ms: int) -> bool:
        """Return whether the topics of the expression have changed; refuse an invalid one."""
        if not regex:
            return False
        changed = self._regexes.refresh(regex, topics, may_see, now_ms, self.config.regex_refresh_interval_ms)
        if changed is not None:
            self._change(changed)
        return changed is not None

    def _drop_regexes(self) -> None:
        for record in self._regexes.retain({member.topic_regex for member in self.members.values()}):
            self._change(record)

    def _check_topics(self, topics: Topics) -> bool:
        """Look at the topics that the group is subscribed to; return whether they have changed."""
        self._topics = topics
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.subscribed_topics()):
            if name in topics:
                digest.update(f"{name} {topics[name].topic_id} {topics[name].partition_count}\n".encode())
        topics_hash = int.from_bytes(digest.digest(), signed=True)
        has_changed, self._topics_hash = topics_hash != self._topics_hash, topics_hash
        return has_changed

    def _bump_epoch(self) -> None:
        self.epoch += 1
        self._change(consumer_records.group_record(self.group_id, self.epoch, self._topics_hash))

    def _assign(self, topics: Topics) -> None:
        """Have the assignor make a target for the present epoch."""
        subscribers = {member.member_id: self._subscriber(member, topics) for member in self.members.values()}
        counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        targets = ASSIGNORS[self.assignor](subscribers, counts)
        for member_id, target in targets.items():
            if self.targets.get(member_id) != target:
                self._change(consumer_records.target_record(self.group_id, member_id, target))
        self.targets, self.target_epoch = targets, self.epoch
        self._change(consumer_records.target_epoch_record(self.group_id, self.target_epoch))

    def _subscriber(self, member: ConsumerMember, topics: Topics) -> Subscriber:
        ids = frozenset(topics[name].topic_id for name in self._names_of(member) if name in topics)
        return Subscriber(member.instance_id, ids, self.targets.get(member.member_id, NOTHING))

    def _change(self, record: KeyValue) -> None:
        key, value = record
        self._changes.pop(key, None)  # its place is that of the last change
        self._changes[key] = value
