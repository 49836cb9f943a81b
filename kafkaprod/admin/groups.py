"""Which groups there are, offsets that they have committed, and what a user may do with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import GROUP, find_coordinator
from kafkaprod.admin.topics import first
from kafkaprod.errors import ConnectionLostError, CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.describe_groups import NOT_REQUESTED, DescribeGroupsRequest
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponsePartition,
)
from kafkaprod.structs import TopicPartition

STABLE_VERSION: Final = 7  # of OffsetFetch: the first that waits for open transactions, and the last with one group
RETRY_MS: Final = 100
_MAX_MOVES: Final = 100  # RETRY_MS apart


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, and the text that was committed with it."""

    offset: int
    metadata: str


def committed_offset(
    client: ClusterClient, group: str, place: TopicPartition, patience_ms: int = 10_000, *, is_stable: bool = True
) -> CommittedOffset | None:
    """Return what a group has committed for a partition, by finished transactions alone; None: nothing.

    Args, Raises: as `committed_offsets`; the place is the partition.
    """
    found = committed_offsets(client, group, place.topic, [place.partition], patience_ms, is_stable=is_stable)
    return found.get(place.partition)


def committed_offsets(
    client: ClusterClient,
    group: str,
    topic: str,
    partitions: Sequence[int],
    patience_ms: int = 10_000,
    *,
    is_stable: bool = True,
) -> dict[int, CommittedOffset]:
    """Return what a group has committed for partitions of a topic, by finished transactions alone.

    Args:
        client: A client of the cluster.
        group: Its id; it needs no members.
        topic: The topic.
        partitions: The partitions of it that are looked at.
        patience_ms: How long to wait while an unfinished transaction holds an offset of them.
        is_stable: Wait for unfinished transactions; False: return what was committed before them.

    Returns:
        By partition; those without an offset are left out.

    Raises:
        BrokerError: UNSTABLE_OFFSET_COMMIT after `patience_ms`, or as the coordinator answered.
        CorruptDataError: The answer lacks a partition.
        UnsupportedVersionError: The brokers are older than Kafka 2.5.
    """
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))
    request = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=is_stable)
    coordinator: int | None = None
    moves = 0
    while True:
        if coordinator is None:
            coordinator = find_coordinator(client, group, GROUP)
        code, answer, place = ErrorCode.COORDINATOR_NOT_AVAILABLE.value, None, partitions[0]
        try:
            answer = client.ask(request, coordinator, STABLE_VERSION)
            code = answer.error_code
        except ConnectionLostError:
            pass  # the coordinator has gone: look for the next one
        if answer is not None and not code:
            offsets = first(answer.topics, "topic").partitions
            code, place = next(((each.error_code, each.partition_index) for each in offsets if each.error_code), (0, 0))
            if not code:
                return _committed(offsets, topic, partitions)
        error = error_for(code, about=f"committed offset of group {group!r}", topic=topic, partition=place)
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            patience_ms -= RETRY_MS
            has_ended = patience_ms < 0
        else:
            coordinator, moves = None, moves + 1
            has_ended = moves > _MAX_MOVES or not describe(code).retriable
        if has_ended:
            raise error
        client.wait(RETRY_MS)


def offset_before(client: ClusterClient, group: str, place: TopicPartition, node_id: int) -> CommittedOffset | None:
    """Return what was committed before the offset that is pending at a node; None: nothing.

    Args:
        client: A client of the cluster.
        group: Its id.
        place: The partition.
        node_id: The coordinator that has taken the pending offset: it has all that was committed before, which a
            coordinator that was deposed while it was paused may not.

    Raises:
        BrokerError, ConnectionLostError: It does not coordinate the group any more, or did not answer.
    """
    wanted = OffsetFetchRequestTopic(name=place.topic, partition_indexes=[place.partition])
    client.metadata([])
    answer = client.ask(OffsetFetchRequest(group_id=group, topics=[wanted]), node_id, STABLE_VERSION)
    offsets = [] if answer.error_code else first(answer.topics, "topic").partitions
    code = answer.error_code or next((each.error_code for each in offsets if each.error_code), 0)
    if code:
        raise error_for(
            code, about=f"committed offset of group {group!r}", topic=place.topic, partition=place.partition
        )
    return _committed(offsets, place.topic, [place.partition]).get(place.partition)


def _committed(
    offsets: Sequence[OffsetFetchResponsePartition], topic: str, partitions: Sequence[int]
) -> dict[int, CommittedOffset]:
    if missing := set(partitions) - {each.partition_index for each in offsets}:
        raise CorruptDataError(f"OffsetFetch response lacks partition {min(missing)} of {topic!r}")
    return {
        each.partition_index: CommittedOffset(each.committed_offset, each.metadata or "")
        for each in offsets
        if each.committed_offset >= 0
    }


def list_groups(client: ClusterClient) -> list[str]:
    """Return the names of all groups that this user may describe, those with nothing but offsets included.

    Raises:
        BrokerError: As a broker answered.
        ConnectionLostError: A broker of the cluster cannot be asked.
    """
    for move in range(_MAX_MOVES):
        try:
            answers = [client.ask(ListGroupsRequest(), broker.node_id) for broker in client.metadata([]).brokers]
        except ConnectionLostError:  # a broker has gone: ask those that coordinate its groups now
            if move == _MAX_MOVES - 1:
                raise
            client.wait(RETRY_MS)
            continue
        code = next((answer.error_code for answer in answers if answer.error_code), 0)
        if not code:
            return sorted({group.group_id for answer in answers for group in answer.groups})
        if not describe(code).retriable:
            break
        client.wait(RETRY_MS)
    raise error_for(code, "groups of the cluster")


def group_operations(client: ClusterClient, group: str) -> int | None:
    """Return what this user may do with a group, as Kafka's bit field; None: the brokers do not say.

    Raises:
        BrokerError: GROUP_AUTHORIZATION_FAILED, or as the coordinator answered.
    """
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    for _ in range(_MAX_MOVES):
        described = first(client.ask(request, find_coordinator(client, group, GROUP)).groups, "group")
        code = described.error_code
        if not code or code == ErrorCode.GROUP_ID_NOT_FOUND:
            operations = int(described.authorized_operations)
            return None if operations == NOT_REQUESTED else operations
        if not describe(code).retriable:
            break
        client.wait(RETRY_MS)
    raise error_for(code, about=f"group {group!r}")
