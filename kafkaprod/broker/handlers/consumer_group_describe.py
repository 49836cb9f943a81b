"""ConsumerGroupDescribe (69): state, members, assignments and targets of groups of the consumer protocol.

1    which protocol a member uses
"""

from __future__ import annotations

from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.consumer_member import NOTHING, ConsumerMember
from kafkaprod.broker.coordinator.consumer_member import Assignment as AssignedPartitions
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.handlers.authorization import (
    Authorizer,
    Handle,
    ItemRight,
    RefuseRequest,
    show_authorized_operations,
)
from kafkaprod.broker.metadata.features import GROUP_VERSION
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import GROUP, TOPIC
from kafkaprod.broker.settings.authorized_operations import GROUP_OPERATIONS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

API = ApiKey.CONSUMER_GROUP_DESCRIBE
LANE = Lane.CONTROL
MAX_VERSION = 1
NEEDS_LEVEL = GROUP_VERSION
COORDINATED_BY = GROUPS

_CLASSIC_TYPE = 0
_CONSUMER_TYPE = 1


def handle(broker: Broker, request: ClientRequest[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    """Describe each group, once; GROUP_ID_NOT_FOUND if there is none, or if it is a classic one."""
    groups = [_describe(broker, group_id) for group_id in dict.fromkeys(request.body.group_ids)]
    if request.body.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    group = broker.groups.get_consumer(group_id)
    if group is None:
        is_classic = broker.groups.get(group_id) is not None
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a consumer group."
            if is_classic
            else f"Group {group_id} not found.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(broker, group, member) for member in group.members.values()],
    )


def _member(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or None,
        assignment=_assignment(broker, member.assigned),
        target_assignment=_assignment(broker, group.targets.get(member.member_id, NOTHING)),
        member_type=_CONSUMER_TYPE if member.classic is None else _CLASSIC_TYPE,
    )


def _assignment(broker: Broker, assigned: AssignedPartitions) -> Assignment:
    """The partitions by topic; those of deleted topics are left out, they have no name."""
    topics: list[TopicPartitions] = []
    for topic_id, index in sorted(assigned):
        if not topics or topics[-1].topic_id != topic_id:
            topic = broker.topics.by_id(topic_id)
            topics.append(TopicPartitions(topic_id=topic_id, topic_name="" if topic is None else topic.name))
        topics[-1].partitions.append(index)
    return Assignment(topic_partitions=[topic for topic in topics if topic.topic_name])


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the groups, then refuse those with assigned topics that may not be described."""
    right = ItemRight(acls.DESCRIBE, GROUP, "group_ids", "groups", "")
    response: Any = authorizer.split(call, deny, right)
    show_authorized_operations(authorizer, response)
    for group in response.groups:
        shares = [share for member in group.members for share in (member.assignment, member.target_assignment)]
        names = {topic.topic_name for share in shares for topic in share.topic_partitions}
        if not all(authorizer.may(acls.DESCRIBE, TOPIC, name) for name in names):
            group.error_code, group.members = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
            group.error_message = "The group has described topic(s) that the client is not authorized to describe."
    return response
