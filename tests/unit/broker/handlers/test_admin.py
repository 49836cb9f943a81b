"""What the handlers of administration answer that need no more than the one broker there is."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.handlers.describe_topic_partitions import MAX_PARTITIONS_OF_PAGE
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    join_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    offset_delete,
    unregister_broker,
    update_features,
)
from tests.support.broker.broker_requests import TOPIC, commit, committed, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})


def test_leaders_need_no_election(box: BrokerWithoutSockets) -> None:
    named = elect_leaders.TopicPartitions(topic=TOPIC, partitions=[0, 9])
    request = elect_leaders.ElectLeadersRequest(topic_partitions=[named])
    answer = box.ask(request, elect_leaders.ElectLeadersResponse, 2)
    codes = [outcome.error_code for outcome in answer.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    everything = elect_leaders.ElectLeadersRequest(topic_partitions=None)
    answer = box.ask(everything, elect_leaders.ElectLeadersResponse, 0)
    assert (answer.error_code, answer.replica_election_results) == (0, [])
    everything.election_type = 7
    assert box.ask(everything, elect_leaders.ElectLeadersResponse, 2).error_code == ErrorCode.INVALID_REQUEST


def test_replicas_can_only_be_reassigned_to_where_they_are(box: BrokerWithoutSockets) -> None:
    partitions = [
        alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in ((0, [0]), (0, [1]), (0, [0, 1]), (1, None), (9, [0]))
    ]
    topic = alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=partitions)
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])
    answer = box.ask(request, alter_partition_reassignments.AlterPartitionReassignmentsResponse, 1)
    assert [outcome.error_code for outcome in answer.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    listed = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    assert box.ask(listed, list_partition_reassignments.ListPartitionReassignmentsResponse, 0).topics == []


@pytest.mark.parametrize("version", [1, 4])
def test_the_log_directory_is_described_with_sizes(box: BrokerWithoutSockets, version: int) -> None:
    batch = make_batch()
    produce(box, batch)
    everything = describe_log_dirs.DescribeLogDirsRequest(topics=None)
    (found,) = box.ask(everything, describe_log_dirs.DescribeLogDirsResponse, version).results
    assert found.log_dir == box.broker.log_dirs.first.path
    assert [(item.partition_index, item.partition_size) for item in found.topics[0].partitions] == [
        (0, len(batch)),
        (1, 0),
    ]
    topic = describe_log_dirs.DescribableLogDirTopic(topic=TOPIC, partitions=[1, 9])
    other = describe_log_dirs.DescribableLogDirTopic(topic="nothing", partitions=[0])
    some = describe_log_dirs.DescribeLogDirsRequest(topics=[topic, other])
    (found,) = box.ask(some, describe_log_dirs.DescribeLogDirsResponse, version).results
    assert [(entry.name, [item.partition_index for item in entry.partitions]) for entry in found.topics] == [
        (TOPIC, [1])
    ]


def test_replicas_stay_in_the_only_log_directory(box: BrokerWithoutSockets) -> None:
    dirs = [
        alter_replica_log_dirs.AlterReplicaLogDir(
            path=path, topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0, 9])]
        )
        for path in (box.broker.log_dirs.first.path, "/elsewhere")
    ]
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=dirs)
    answer = box.ask(request, alter_replica_log_dirs.AlterReplicaLogDirsResponse, 2)
    assert [[outcome.error_code for outcome in topic.partitions] for topic in answer.results] == [
        [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.LOG_DIR_NOT_FOUND],
    ]


def delete_offsets(box: BrokerWithoutSockets, *indexes: int, group: str = "g") -> tuple[int, list[int]]:
    partitions = [offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    topic = offset_delete.OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)
    request = offset_delete.OffsetDeleteRequest(group_id=group, topics=[topic])
    answer = box.ask(request, offset_delete.OffsetDeleteResponse, 0)
    return answer.error_code, [outcome.error_code for topic in answer.topics for outcome in topic.partitions]


def join(box: BrokerWithoutSockets, protocol_type: str, metadata: bytes) -> None:
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = join_group.JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, protocol_type=protocol_type, protocols=protocols
    )
    assert box.ask(request, join_group.JoinGroupResponse, 3).error_code == ErrorCode.NONE


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def test_committed_offsets_are_deleted(box: BrokerWithoutSockets) -> None:
    commit(box, 7)
    commit(box, 8, partition=1)
    assert delete_offsets(box, 0, 9) == (0, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert (committed(box, 0), committed(box, 1)) == (-1, 8)
    assert delete_offsets(box, 0, group="nothing") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "expected"),
    [
        ("consumer", subscription("other", TOPIC), (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])),
        ("consumer", subscription("other"), (0, [ErrorCode.NONE])),
        ("consumer", b"\0", (ErrorCode.NON_EMPTY_GROUP, [])),
        ("connect", subscription("other"), (ErrorCode.NON_EMPTY_GROUP, [])),
    ],
)
def test_offsets_of_subscribed_topics_stay(
    box: BrokerWithoutSockets, protocol_type: str, metadata: bytes, expected: tuple[int, list[int]]
) -> None:
    commit(box, 7)
    join(box, protocol_type, metadata)
    assert delete_offsets(box, 0) == expected
    assert committed(box) == (7 if expected != (0, [ErrorCode.NONE]) else -1)


def test_topics_are_described_in_pages(box: BrokerWithoutSockets) -> None:
    box.own_topics.create("a", 3, {})
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(response_partition_limit=2)
    pages: list[list[tuple[str | None, list[int]]]] = []
    while True:
        answer = box.ask(request, describe_topic_partitions.DescribeTopicPartitionsResponse, 0)
        pages.append([(topic.name, [item.partition_index for item in topic.partitions]) for topic in answer.topics])
        request.cursor = answer.next_cursor
        if request.cursor is None:
            break
    assert pages == [[("a", [0, 1])], [("a", [2]), (TOPIC, [0])], [(TOPIC, [1])]]
    named = [describe_topic_partitions.TopicRequest(name=name) for name in ("zz", TOPIC)]
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=named, response_partition_limit=MAX_PARTITIONS_OF_PAGE
    )
    answer = box.ask(request, describe_topic_partitions.DescribeTopicPartitionsResponse, 0)
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics] == [
        (TOPIC, 0, 2),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]


@pytest.mark.parametrize(
    ("name", "expected"), [("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("a/b", 17), ("..", 17), ("x" * 250, 17)]
)
def test_a_name_that_no_topic_can_have_is_said_to_be_one(box: BrokerWithoutSockets, name: str, expected: int) -> None:
    by_page = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name)]
    )
    page = box.ask(by_page, describe_topic_partitions.DescribeTopicPartitionsResponse, 0)
    assert page.topics[0].error_code == expected
    topic = describe_producers.TopicRequest(name=name, partition_indexes=[0])
    of_producers = describe_producers.DescribeProducersRequest(topics=[topic])
    answer = box.ask(of_producers, describe_producers.DescribeProducersResponse, 0)
    assert answer.topics[0].partitions[0].error_code == expected
    resource = describe_configs.DescribeConfigsResource(resource_type=2, resource_name=name)
    of_options = describe_configs.DescribeConfigsRequest(resources=[resource])
    assert box.ask(of_options, describe_configs.DescribeConfigsResponse, 4).results[0].error_code == expected


@pytest.mark.parametrize(
    ("broker_id", "error", "message"),
    [
        (0, ErrorCode.INVALID_REQUEST, "Broker 0 is the only one."),
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 9 is not currently registered"),
    ],
)
def test_the_only_broker_is_not_forgotten(
    box: BrokerWithoutSockets, broker_id: int, error: ErrorCode, message: str
) -> None:
    request = unregister_broker.UnregisterBrokerRequest(broker_id=broker_id)
    answer = box.ask(request, unregister_broker.UnregisterBrokerResponse, 0)
    assert (answer.error_code, answer.error_message) == (error, message)
    assert sorted(box.broker.image.brokers) == [0]


@pytest.mark.parametrize("version", [0, 2])
def test_the_broker_is_its_own_quorum(box: BrokerWithoutSockets, version: int) -> None:
    topics = [
        describe_quorum.TopicData(
            topic_name=name, partitions=[describe_quorum.PartitionData(partition_index=index) for index in (0, 1)]
        )
        for name in ("__cluster_metadata", TOPIC)
    ]
    request = describe_quorum.DescribeQuorumRequest(topics=topics)
    answer = box.ask(request, describe_quorum.DescribeQuorumResponse, version)
    assert [[item.error_code for item in topic.partitions] for topic in answer.topics] == [[0, 3], [3, 3]]
    assert [voter.replica_id for voter in answer.topics[0].partitions[0].current_voters] == [0]
    assert [node.node_id for node in answer.nodes] == ([0] if version == 2 else [])


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (-4, 8, (0, 0)),
        (-4, 7, (ErrorCode.UNSUPPORTED_VERSION, -1)),
        (-5, 9, (0, -1)),
        (-5, 8, (ErrorCode.UNSUPPORTED_VERSION, -1)),
        (-6, 11, (0, -1)),
        (-6, 10, (ErrorCode.UNSUPPORTED_VERSION, -1)),
        (-1, 11, (0, 1)),
    ],
)
def test_special_timestamps_are_known_from_their_version_on(
    box: BrokerWithoutSockets, timestamp: int, version: int, expected: tuple[int, int]
) -> None:
    produce(box, make_batch())
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
    found = box.ask(request, list_offsets.ListOffsetsResponse, version).topics[0].partitions[0]
    assert (found.error_code, found.offset) == expected


def test_groups_are_listed_by_type(box: BrokerWithoutSockets) -> None:
    commit(box, 7)
    for types, expected in (([], ["g"]), (["Classic"], ["g"]), (["consumer"], [])):
        request = list_groups.ListGroupsRequest(types_filter=types)
        groups = box.ask(request, list_groups.ListGroupsResponse, 5).groups
        assert [group.group_id for group in groups] == expected
        assert {group.group_type for group in groups} <= {"classic"}


def test_unknown_group_is_an_error_since_version_6(box: BrokerWithoutSockets) -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["nothing"])
    codes = [
        box.ask(request, describe_groups.DescribeGroupsResponse, version).groups[0].error_code for version in (5, 6)
    ]
    assert codes == [0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_features_change_by_every_version_of_the_request(box: BrokerWithoutSockets) -> None:
    """Only versions 0 and 1 name the features that were changed; what 0 says of downgrades counts for nothing."""

    def ask(version: int, level: int, **fields: Any) -> update_features.UpdateFeaturesResponse:
        update = update_features.FeatureUpdateKey(feature="transaction.version", max_version_level=level, **fields)
        request = update_features.UpdateFeaturesRequest(feature_updates=[update])
        answer = box.ask(request, update_features.UpdateFeaturesResponse, version)
        return answer.decode(answer.encode(version), version)

    assert (ask(2, 1, upgrade_type=2).results, box.broker.transactions.level) == ([], 1)
    (result,) = ask(1, 2).results
    assert (result.feature, result.error_code, box.broker.transactions.level) == ("transaction.version", 0, 2)
    assert [each.error_code for each in ask(0, 2, allow_downgrade=True).results] == [0]
    refused = ask(0, 1, allow_downgrade=True)
    assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert str(refused.error_message).startswith(
        "The update failed for all features since the following feature had an error: Invalid update version 1 for "
        "feature transaction.version. Can't downgrade"
    )


def test_a_level_is_kept_over_a_restart(tmp_path: Path) -> None:
    for level in (2, 1, 1):
        box = BrokerWithoutSockets(tmp_path)
        assert box.broker.transactions.level == level
        update = update_features.FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
        request = update_features.UpdateFeaturesRequest(feature_updates=[update])
        assert box.ask(request, update_features.UpdateFeaturesResponse, 2).error_code == 0
        box.broker.close()
