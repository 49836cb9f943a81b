"""Requests that cost most when much was made before: many partitions, transactions, offsets, members, ACLs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kafkaprod.broker.coordinator.offsets import MAX_METADATA_BYTES
from kafkaprod.broker.settings import acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkaprod.protocol.messages.describe_acls import DescribeAclsRequest
from kafkaprod.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkaprod.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkaprod.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkaprod.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkaprod.protocol.messages.list_transactions import ListTransactionsRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.broker.hostile_settings import frame_of, many_acls

EXISTING: Final = "existing"
"""A topic that requests may delete; the honest client has another one."""
_REGEX: Final = "(a|b)*a(a|b){480}"
_ID_PAIRS: Final = 500


class Case(NamedTuple):
    """One request, and those that are sent and answered before it."""

    before: Sequence[bytes]
    frame: bytes


def prepared(api: ApiKey, elements: int) -> Iterator[tuple[str, Case]]:
    """Yield the names of an API's cases, and the cases.

    Args:
        api: Of the request that is measured.
        elements: How large what was made before is: as many elements as a request may have, or fewer.
    """
    for make in _CASES.get(api, ()):
        yield make.__name__.strip("_").replace("_", " "), make(elements)


@functools.cache
def _partitions(elements: int) -> tuple[bytes, ...]:
    """Make a topic of many partitions."""
    count = min(elements, 10_000)
    topics = [CreatableTopic(name="many", num_partitions=count, replication_factor=1)]
    return (frame_of(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7),)


def _many_topics(elements: int) -> Case:
    topics = [
        CreatableTopic(name=f"made-{number}", num_partitions=1, replication_factor=1)
        for number in range(min(elements, 2_000))
    ]
    return Case((), frame_of(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7))


def _many_partitions(elements: int) -> Case:
    grown = [CreatePartitionsTopic(name=EXISTING, count=min(elements, 5_000))]
    return Case((), frame_of(CreatePartitionsRequest(topics=grown, timeout_ms=60_000), 3))


def _all_topics(elements: int) -> Case:
    return Case(_partitions(elements), frame_of(MetadataRequest(topics=None), 12))


def _all_pages(elements: int) -> Case:
    return Case(_partitions(elements), frame_of(DescribeTopicPartitionsRequest(response_partition_limit=2_000), 0))


def _all_sizes(elements: int) -> Case:
    return Case(_partitions(elements), frame_of(DescribeLogDirsRequest(topics=None), 4))


def _all_leaders(elements: int) -> Case:
    return Case(_partitions(elements), frame_of(ElectLeadersRequest(topic_partitions=None, timeout_ms=60_000), 2))


def _all_offsets(elements: int) -> Case:
    wanted = [ListOffsetsPartition(partition_index=index % 10_000, timestamp=-3) for index in range(elements)]
    topics = [ListOffsetsTopic(name="many", partitions=wanted)]
    return Case(_partitions(elements), frame_of(ListOffsetsRequest(topics=topics), 7))


def _all_records(elements: int) -> Case:
    wanted = [FetchPartition(partition=index % 10_000, partition_max_bytes=1 << 20) for index in range(elements)]
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1, topics=[FetchTopic(topic="many", partitions=wanted)])
    return Case(_partitions(elements), frame_of(request, 11))


def _a_large_topic_goes(elements: int) -> Case:
    return Case(_partitions(elements), frame_of(DeleteTopicsRequest(topics=[DeleteTopicState(name="many")]), 6))


def _pattern_over_ids(elements: int) -> Case:
    ids = [f"{number}-{'ab' * _ID_PAIRS}" for number in range(min(elements, 1_000))]
    before = [frame_of(InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=1_000), 4) for each in ids]
    return Case(before, frame_of(ListTransactionsRequest(transactional_id_pattern=_REGEX), 2))


def _pattern_over_topics(elements: int) -> Case:
    topics = [
        CreatableTopic(name=f"t{number}-{'ab' * 110}", num_partitions=1, replication_factor=1)
        for number in range(min(elements, 1_000))
    ]
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_regex=_REGEX, topic_partitions=[]
    )
    return Case([frame_of(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)], frame_of(request, 1))


def _all_offsets_of_a_group(elements: int) -> Case:
    """Offsets with as much metadata as one may have, made by several requests; the group is named again and again."""
    before = [_offsets(first, min(200, elements)) for first in range(0, min(elements, 9_000), 200)]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None) for _ in range(elements)]
    return Case([*_partitions(elements), *before], frame_of(OffsetFetchRequest(groups=groups), 8))


def _offsets(first: int, count: int) -> bytes:
    note = "m" * MAX_METADATA_BYTES
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=note)
        for index in range(first, first + count)
    ]
    topics = [OffsetCommitRequestTopic(name="many", partitions=offsets)]
    return frame_of(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics), 8)


def _much_metadata_of_members(elements: int) -> Case:
    protocols = [
        JoinGroupRequestProtocol(name=f"p{number}", metadata=bytes(7_000_000 // 1_000)) for number in range(1_000)
    ]
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols[: max(elements, 1)],
    )
    return Case((), frame_of(request, 3))


def _many_names_of_a_member(elements: int) -> Case:
    names = [f"topic-{number}" for number in range(elements)]
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1_000, subscribed_topic_names=names, topic_partitions=[]
    )
    return Case((), frame_of(request, 1))


def _many_entries(_: int) -> Case:
    everything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    return Case([many_acls(prefix) for prefix in ("none-", "no-")], frame_of(everything, 3))


def _many_entries_come(_: int) -> Case:
    return Case([many_acls("none-")], many_acls("no-"))


def _many_entries_go(elements: int) -> Case:
    each = DeleteAclsFilter(
        resource_type_filter=acls.ANY, pattern_type_filter=acls.ANY, operation=acls.ANY, permission_type=acls.ANY
    )
    return Case([many_acls("none-")], frame_of(DeleteAclsRequest(filters=[each] * elements), 3))


def _options_of_one_topic(elements: int) -> Case:
    """The same topic again and again, each time with another option that does not exist."""
    wanted = [
        DescribeConfigsResource(resource_type=acls.TOPIC, resource_name=EXISTING, configuration_keys=[f"k{number}"])
        for number in range(elements // 2)
    ]
    return Case((), frame_of(DescribeConfigsRequest(resources=wanted, include_synonyms=True), 4))


_CASES: Final[Mapping[ApiKey, Sequence[Callable[[int], Case]]]] = {
    ApiKey.METADATA: (_all_topics,),
    ApiKey.FETCH: (_all_records,),
    ApiKey.LIST_OFFSETS: (_all_offsets,),
    ApiKey.OFFSET_FETCH: (_all_offsets_of_a_group,),
    ApiKey.JOIN_GROUP: (_much_metadata_of_members,),
    ApiKey.CREATE_TOPICS: (_many_topics,),
    ApiKey.DELETE_TOPICS: (_a_large_topic_goes,),
    ApiKey.CREATE_PARTITIONS: (_many_partitions,),
    ApiKey.DESCRIBE_CONFIGS: (_options_of_one_topic,),
    ApiKey.DESCRIBE_ACLS: (_many_entries,),
    ApiKey.CREATE_ACLS: (_many_entries_come,),
    ApiKey.DELETE_ACLS: (_many_entries_go,),
    ApiKey.DESCRIBE_LOG_DIRS: (_all_sizes,),
    ApiKey.ELECT_LEADERS: (_all_leaders,),
    ApiKey.LIST_TRANSACTIONS: (_pattern_over_ids,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_many_names_of_a_member, _pattern_over_topics),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_all_pages,),
}
