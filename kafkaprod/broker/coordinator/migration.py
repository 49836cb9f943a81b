"""A group with members changes its protocol (KIP-848, "online migration").

    classic --a member of the consumer protocol joins--> consumer
    consumer --its last member of the consumer protocol has left--> classic, which rebalances

Members and assignments stay; the generation becomes the group epoch and back. Source: Kafka, GroupMetadataManager,
ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator.classic_calls import by_id, by_name
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.consumer_member import NOTHING, ClassicMetadata, ConsumerMember
from kafkaprod.broker.coordinator.group import Group, GroupState
from kafkaprod.broker.coordinator.member import GroupConfig, Member
from kafkaprod.broker.coordinator.regex_subscriptions import Topics
from kafkaprod.broker.coordinator.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode


def check_upgrade(group: Group, *, is_allowed: bool, max_size: int) -> None:
    """Check that a classic group with members may become one of the consumer protocol.

    Raises:
        RequestRefusedError: GROUP_ID_NOT_FOUND, it may not.
    """
    reason = None
    if not is_allowed:
        reason = "group.consumer.migration.policy does not allow to upgrade it"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = f"its members are of the type {group.protocol_type!r}"
    elif len(group.members) > max_size:
        reason = f"it has {len(group.members)} members, and group.consumer.max.size is {max_size}"
    if reason is not None:
        raise _refusal(group.group_id, reason)


def upgrade(group: Group, into: ConsumerGroup, topics: Topics, now_ms: int) -> None:
    """Give the members of a classic group to a new one of the consumer protocol; the classic group stays as it is.

    Raises:
        RequestRefusedError: GROUP_ID_NOT_FOUND, a member's subscription or assignment cannot be read, or has data of an
            assignor that would be lost. Nothing was changed.
    """
    try:
        members = [_consumer_member(group, member, topics) for member in group.members.values()]
    except CorruptDataError as error:
        raise _refusal(group.group_id, f"the embedded consumer protocol is malformed: {error}") from error
    into.take_over(group.generation_id, members, now_ms)


def downgrade(group: ConsumerGroup, config: GroupConfig, topics: Topics, now_ms: int) -> Group:
    """Return a stable classic group with the members of a group whose members all use the classic protocol."""
    classic = Group(group.group_id, config)
    for consumer in group.members.values():
        classic.roster.place(_member(consumer, now_ms))
    classic.state = GroupState.STABLE
    classic.generation_id = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    classic.protocol_name = classic.roster.select_protocol()
    for member in classic.members.values():
        version = read_subscription(member.protocols[classic.protocol_name]).version
        target = group.targets.get(member.member_id, NOTHING)
        member.assignment = write_assignment(version, by_name(target, topics))
    return classic


def _consumer_member(group: Group, member: Member, topics: Topics) -> ConsumerMember:
    metadata = member.protocols.get(group.protocol_name or "", next(iter(member.protocols.values())))
    subscription, assignment = read_subscription(metadata), read_assignment(member.assignment)
    if assignment.user_data:
        raise _refusal(group.group_id, "an unsupported custom assignor is in use: its assignments have user data")
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=by_id(assignment.partitions, topics),
        classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols.items())),
    )


def _member(consumer: ConsumerMember, now_ms: int) -> Member:
    assert consumer.classic is not None
    return Member(
        consumer.member_id,
        consumer.instance_id,
        consumer.client_id,
        consumer.client_host.removeprefix("/"),
        consumer.classic.session_timeout_ms,
        consumer.rebalance_timeout_ms,
        dict(consumer.classic.protocols),
        now_ms + consumer.classic.session_timeout_ms,
        has_joined=True,
    )


def _refusal(group_id: str, reason: str) -> RequestRefusedError:
    return RequestRefusedError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group, and cannot become one: {reason}."
    )
