"""Requests of members that use the classic protocol in a group of the consumer protocol (KIP-848, "online migration").

Such a member joins with what it owns, is answered at once, and gets its share of the target by SyncGroup. Heartbeat
answers REBALANCE_IN_PROGRESS when it must join again: the group has a new epoch, it must give up partitions, or those
it waits for are free. Its generation is its member epoch. There is no leader: the group assigns. Source: Kafka,
GroupMetadataManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.consumer_member import (
    JOIN_EPOCH,
    Assignment,
    ClassicMetadata,
    ConsumerHeartbeat,
    ConsumerMember,
    MemberState,
    TopicIdPartition,
)
from kafkaprod.broker.coordinator.member import JoinAttempt, JoinResult, SyncAttempt, SyncResult
from kafkaprod.broker.coordinator.regex_subscriptions import Topics
from kafkaprod.broker.coordinator.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    PartitionsByTopic,
    Subscription,
    read_subscription,
    write_assignment,
)
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode


def join(group: ConsumerGroup, attempt: JoinAttempt, topics: Topics, now_ms: int) -> JoinResult:
    """JoinGroup; answered at once.

    Raises:
        RequestRefusedError: INCONSISTENT_GROUP_PROTOCOL, the member has no protocol that the others have, or its
            subscription is damaged; UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID: it cannot become a
            member. Nothing was changed.
    """
    member_id = attempt.member_id or str(uuid.uuid4())
    protocols = _supported_protocols(group, member_id, attempt)
    if attempt.needs_known_id and not attempt.member_id:
        group.check_room(member_id)
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    if attempt.instance_id is not None and attempt.member_id:
        group.find(attempt.member_id, attempt.instance_id)
    name, metadata = protocols[0]
    subscription = _read(metadata)
    beat = ConsumerHeartbeat(
        group.group_id,
        member_id,
        JOIN_EPOCH,
        attempt.client_id,
        f"/{attempt.client_host}",
        attempt.instance_id,
        subscription.rack_id,
        attempt.rebalance_timeout_ms,
        frozenset(subscription.topics),
        owned=by_id(subscription.owned, topics),
        classic=ClassicMetadata(attempt.session_timeout_ms, protocols),
    )
    result = group.heartbeat(beat, topics, now_ms)
    return JoinResult(ErrorCode.NONE, member_id, result.member_epoch, CONSUMER_PROTOCOL_TYPE, name)


def sync(group: ConsumerGroup, attempt: SyncAttempt, topics: Topics, now_ms: int) -> SyncResult:
    """SyncGroup; answered at once with what the member has.

    Raises:
        RequestRefusedError: ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID:
            it is no such member; REBALANCE_IN_PROGRESS, it must join again.
    """
    member, classic = _classic_member(group, attempt.member_id, attempt.instance_id, attempt.generation_id)
    name, metadata = classic.protocols[0]
    if attempt.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or attempt.protocol_name not in (None, name):
        raise RequestRefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member.member_id} joined with {CONSUMER_PROTOCOL_TYPE} and {name}, not {attempt.protocol_type} "
            f"and {attempt.protocol_name}.",
        )
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        group.timers.await_rebalance(member, now_ms)
        raise RequestRefusedError(
            ErrorCode.REBALANCE_IN_PROGRESS, f"Group {group.group_id} rebalances; {member.member_id} must join again."
        )
    group.timers.end_rebalance(member)
    group.keep_session(member, now_ms)
    assignment = write_assignment(_read(metadata).version, by_name(member.assigned, topics))
    return SyncResult(ErrorCode.NONE, attempt.protocol_type, attempt.protocol_name, assignment)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
) -> ErrorCode:
    """Heartbeat: NONE, or REBALANCE_IN_PROGRESS if the member must join again.

    Raises:
        RequestRefusedError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID: it is no such member.
    """
    member, _ = _classic_member(group, member_id, instance_id, generation_id)
    group.keep_session(member, now_ms)
    is_late = (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    )
    if not is_late:
        return ErrorCode.NONE
    group.timers.await_rebalance(member, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """LeaveGroup of one member; a static one of either protocol may be named by its instance id alone.

    Raises:
        RequestRefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID: it is no such member.
    """
    if instance_id is not None and not member_id:
        group.fence(group.static_member(instance_id))
        return
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise _no_classic_member(member_id)
    group.fence(member)


def by_id(partitions: PartitionsByTopic, topics: Topics) -> Assignment:
    """Return partitions under their topics' ids; those of unknown topics are left out."""
    return frozenset(
        TopicIdPartition(topics[name].topic_id, index)
        for name, indexes in partitions.items()
        if name in topics
        for index in indexes
    )


def by_name(assignment: Assignment, topics: Topics) -> PartitionsByTopic:
    """Return partitions under their topics' names; those of deleted topics are left out."""
    wanted = {partition.topic_id for partition in assignment}
    names: Mapping[uuid.UUID, str] = {
        topic.topic_id: name for name, topic in topics.items() if topic.topic_id in wanted
    }
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(assignment):
        if topic_id in names:
            found.setdefault(names[topic_id], []).append(index)
    return found


def _supported_protocols(group: ConsumerGroup, member_id: str, attempt: JoinAttempt) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols of a join; one of them must be known to all other members of the classic protocol."""
    others = [
        {name for name, _ in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None and member.member_id != member_id and not _is_same_instance(member, attempt)
    ]
    common = set(attempt.protocols).intersection(*others)
    if attempt.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise RequestRefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
        )
    return tuple((name, bytes(metadata)) for name, metadata in attempt.protocols.items())


def _is_same_instance(member: ConsumerMember, attempt: JoinAttempt) -> bool:
    return attempt.instance_id is not None and member.instance_id == attempt.instance_id


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise _no_classic_member(member_id)
    if member.epoch != generation_id:
        raise RequestRefusedError(
            ErrorCode.ILLEGAL_GENERATION, f"Member {member_id} has the epoch {member.epoch}, not {generation_id}."
        )
    return member, member.classic


def _no_classic_member(member_id: str) -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")


def _read(metadata: bytes) -> Subscription:
    try:
        return read_subscription(metadata)
    except CorruptDataError as error:
        raise RequestRefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The member's subscription cannot be read: {error}"
        ) from error
