"""What the handlers answer for groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.coordinator.consumer_group_config import ConsumerGroupConfig
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl, AclFilter
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kafkaprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkaprod.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkaprod.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaprod.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
)
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from kafkaprod.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.broker.broker_requests import TOPIC
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})


def beat(box: BrokerWithoutSockets, member_epoch: int = 0, version: int = 1, **fields: Any) -> Any:
    if member_epoch == 0:
        fields = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": [TOPIC], "topic_partitions": [], **fields}
    fields = {"group_id": "g", "member_id": "m", **fields}
    request = ConsumerGroupHeartbeatRequest(member_epoch=member_epoch, **fields)
    return box.ask(request, ConsumerGroupHeartbeatResponse, version)


def describe(box: BrokerWithoutSockets, group_id: str = "g") -> DescribedGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=True)
    return box.ask(request, ConsumerGroupDescribeResponse, 1).groups[0]


def commit(box: BrokerWithoutSockets, group_id: str, version: int = 9, **fields: Any) -> int:
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])]
    request = OffsetCommitRequest(group_id=group_id, topics=topics, **fields)
    return box.ask(request, OffsetCommitResponse, version).topics[0].partitions[0].error_code


def delete_offset(box: BrokerWithoutSockets) -> OffsetDeleteResponsePartition:
    topic = OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    return box.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), OffsetDeleteResponse, 0).topics[0].partitions[0]


def test_member_joins_is_described_and_leaves(box: BrokerWithoutSockets) -> None:
    joined = beat(box, instance_id="i", rack_id="r")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "m", 1)
    assert [(topic.topic_id, topic.partitions) for topic in joined.assignment.topic_partitions] == [
        (box.broker.topics.all()[-1].topic_id, [0, 1])
    ]
    assert beat(box, 1, instance_id="i").assignment is None
    group = describe(box)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert (group.assignor_name, group.authorized_operations > 0) == ("uniform", True)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_type) == ("m", "i", "r", 1)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("client", "/127.0.0.1", [TOPIC])
    assert member.assignment == member.target_assignment
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [(TOPIC, [0, 1])]
    assert beat(box, -1, instance_id="i").member_epoch == -1
    assert describe(box).group_state == "Empty"


def test_first_version_gets_its_member_id_from_the_broker(box: BrokerWithoutSockets) -> None:
    assert len(beat(box, version=0, member_id="").member_id) == 36
    assert beat(box, member_id="").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("epoch", "fields", "error_code"),
    [
        (0, {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"group_id": "g" * 1025}, ErrorCode.INVALID_REQUEST),
        (0, {"rack_id": "r" * 1025}, ErrorCode.INVALID_REQUEST),
        (0, {"instance_id": "i" * 1025}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "m" * 1025}, ErrorCode.INVALID_REQUEST),
        (0, {"subscribed_topic_names": [str(number).zfill(249) for number in range(1_053)]}, ErrorCode.INVALID_REQUEST),
        (0, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (0, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (0, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        (0, {"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (0, {"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (1, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        (-1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        (-2, {}, ErrorCode.INVALID_REQUEST),
        (-3, {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_heartbeats_are_refused_and_make_no_group(
    box: BrokerWithoutSockets, epoch: int, fields: dict[str, Any], error_code: ErrorCode
) -> None:
    answer = beat(box, epoch, **fields)
    assert (answer.error_code, bool(answer.error_message)) == (error_code, True)
    assert box.ask(ListGroupsRequest(), ListGroupsResponse, 5).groups == []


def test_internal_topics_match_regular_expressions_too(box: BrokerWithoutSockets) -> None:
    commit(box, "classic")
    beat(box, subscribed_topic_names=[], subscribed_topic_regex="(__.*|ord.*)")
    (member,) = describe(box).members
    names = {topic.topic_name for topic in member.assignment.topic_partitions}
    assert (names, member.subscribed_topic_regex) == ({TOPIC, "__consumer_offsets"}, "(__.*|ord.*)")


def test_groups_are_listed_by_type_and_unknown_to_the_other_protocol(box: BrokerWithoutSockets) -> None:
    beat(box)
    commit(box, "classic")
    listed = box.ask(ListGroupsRequest(), ListGroupsResponse, 5).groups
    assert [(group.group_id, group.group_type, group.group_state) for group in listed] == [
        ("classic", "classic", "Empty"),
        ("g", "consumer", "Stable"),
    ]
    for types, expected in ((["Consumer"], ["g"]), (["classic"], ["classic"]), (["share"], [])):
        answer = box.ask(ListGroupsRequest(types_filter=types), ListGroupsResponse, 5)
        assert [group.group_id for group in answer.groups] == expected
    old = box.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6).groups[0]
    assert (old.error_code, old.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    assert describe(box, "classic").error_message == "Group classic is not a consumer group."
    assert describe(box, "x").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_and_their_members_outlive_a_restart(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})
    beat(box, instance_id="i")
    beat(box, group_id="left")
    beat(box, -1, group_id="left")
    beat(box, group_id="deleted")
    beat(box, -1, group_id="deleted")
    deleted = box.ask(DeleteGroupsRequest(groups_names=["deleted"]), DeleteGroupsResponse, 2)
    assert deleted.results[0].error_code == ErrorCode.NONE
    before = describe(box)
    box.broker.close()
    box = BrokerWithoutSockets(tmp_path)
    assert describe(box) == before
    assert describe(box, "left").group_state == "Empty"
    assert describe(box, "deleted").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat(box, 1, instance_id="i").error_code == ErrorCode.NONE
    box.advance(45_000)
    assert describe(box).group_state == "Empty"


def test_options_of_a_group_count_from_the_next_heartbeat_on(box: BrokerWithoutSockets) -> None:
    beat(box)
    configs = [
        AlterableConfig(name="consumer.heartbeat.interval.ms", value="6000"),
        AlterableConfig(name="consumer.session.timeout.ms", value="50000"),
    ]
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=configs)
    answer = box.ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert beat(box, 1).heartbeat_interval_ms == 6_000
    box.advance(49_999)
    assert describe(box).group_state == "Stable"
    box.advance(1)
    assert describe(box).group_state == "Empty"


def test_subscribed_offsets_and_members_are_protected(box: BrokerWithoutSockets) -> None:
    beat(box, instance_id="i")
    assert commit(box, "g", version=8, member_id="m", generation_id_or_member_epoch=1) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(box, "g", version=9, member_id="m", generation_id_or_member_epoch=1) == ErrorCode.NONE
    assert delete_offset(box).error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    stale = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=7)
    answer = box.ask(OffsetFetchRequest(groups=[stale]), OffsetFetchResponse, 9)
    assert answer.groups[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
    members = [MemberIdentity(member_id="", group_instance_id="i")]
    left = box.ask(LeaveGroupRequest(group_id="g", members=members), LeaveGroupResponse, 5)
    assert left.members[0].error_code == ErrorCode.NONE
    assert delete_offset(box).error_code == ErrorCode.NONE


def test_groups_of_the_protocol_need_the_level_of_the_feature(box: BrokerWithoutSockets) -> None:
    """The APIs stay announced; clients see the error in their answers."""
    assert beat(box).error_code == ErrorCode.NONE
    update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    assert box.ask(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse, 2).error_code == 0
    assert beat(box).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert describe(box).error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = box.ask(request, ApiVersionsResponse, 4)
    assert "group.version" not in [feature.name for feature in answer.finalized_features]
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT in [key.api_key for key in answer.api_keys]


def allow(box: BrokerWithoutSockets, user: str, operation: int, resource_type: int, name: str) -> None:
    box.broker.acls.add([Acl(resource_type, name, acls.LITERAL, user, "*", operation, acls.ALLOW)])


def shown_topics(box: BrokerWithoutSockets, member_id: str) -> set[str]:
    (member,) = (member for member in describe(box).members if member.member_id == member_id)
    return {topic.topic_name for topic in member.target_assignment.topic_partitions}


def test_regular_expressions_match_topics_that_the_member_may_describe(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1, "orders-secret": 1, "orders-eu": 1})
    for name in (TOPIC, "orders-eu"):
        allow(box, "User:ann", acls.DESCRIBE, acls.TOPIC, name)
    allow(box, "User:bob", acls.DESCRIBE, acls.TOPIC, "orders-secret")
    box.user = "ann"
    assert beat(box, subscribed_topic_names=[], subscribed_topic_regex="orders.*").error_code == ErrorCode.NONE
    box.user = None
    box.broker.acls.remove(box.broker.acls.find(AclFilter(acls.ANY, None, acls.ANY, None, None, acls.ANY, acls.ANY)))
    assert shown_topics(box, "m") == {TOPIC, "orders-eu"}
    box.broker.close()
    box = BrokerWithoutSockets(tmp_path)  # what was resolved outlives a restart
    assert shown_topics(box, "m") == {TOPIC, "orders-eu"}
    assert beat(box, 1).member_epoch == 2  # with the rights of now
    assert shown_topics(box, "m") == {TOPIC, "orders-eu", "orders-secret"}


def test_regular_expressions_are_resolved_again_in_time(tmp_path: Path) -> None:
    config = ConsumerGroupConfig(regex_refresh_interval_ms=10_000)
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1, "orders-eu": 1}, consumer_groups=config)
    box.broker.standing.make_internal_log("__consumer_offsets")  # a new topic would be a reason, too
    allow(box, "User:ann", acls.DESCRIBE, acls.TOPIC, TOPIC)
    allow(box, "User:bob", acls.DESCRIBE, acls.TOPIC, "orders-eu")
    box.user = "ann"
    beat(box, subscribed_topic_names=[], subscribed_topic_regex="orders.*")
    allow(box, "User:ann", acls.DESCRIBE, acls.TOPIC, "orders-eu")
    box.advance(9_999)
    assert (beat(box, 1).member_epoch, shown_topics(box, "m")) == (1, {TOPIC})
    box.advance(1)
    assert (beat(box, 1).member_epoch, shown_topics(box, "m")) == (2, {TOPIC, "orders-eu"})


def test_topics_a_user_may_not_see_are_refused_and_hidden(box: BrokerWithoutSockets) -> None:
    beat(box)
    allow(box, "User:bob", acls.DESCRIBE, acls.TOPIC, TOPIC)
    allow(box, "User:bob", acls.READ, acls.GROUP, "other")
    allow(box, "User:ann", acls.READ, acls.GROUP, "g")
    box.user = "ann"
    assert beat(box, 1).error_code == ErrorCode.NONE
    assert beat(box, member_id="n").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    shown = describe(box)
    assert (shown.error_code, shown.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert beat(box, group_id="other").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert describe(box, "other").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    allow(box, "User:ann", acls.DESCRIBE, acls.TOPIC, TOPIC)
    assert beat(box, member_id="n").error_code == ErrorCode.NONE
    assert len(describe(box).members) == 2
