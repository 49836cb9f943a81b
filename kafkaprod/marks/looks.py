"""Reading marks, which are offsets that a group has committed, from its coordinator.

A coordinator answers from its memory. One that was paused, and deposed meanwhile, answers "no offset" for a mark that
was committed at the next one. So a look before the rows can only be a reason to do nothing; the *guard* decides: the
look at the node that has just taken the pending mark, which had every mark before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import GROUP, find_coordinator
from kafkaprod.admin.groups import STABLE_VERSION
from kafkaprod.errors import BrokerError, ConfigError, ConnectionLostError
from kafkaprod.marks.mark import Mark
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kafkaprod.structs import TopicPartition

_FIRST_WAIT_MS: Final = 2
_LONGEST_WAIT_MS: Final = 100
_MOST_MOVES_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, and the text that was committed with it."""

    offset: int
    metadata: str


CommittedOffsets = dict[TopicPartition, CommittedOffset]
"""Those of a group, by partition: one without an offset is left out."""


def read_offsets(client: ClusterClient, group: str, patience_ms: int | None) -> CommittedOffsets:
    """Return what a group has committed, by finished transactions alone.

    Args:
        client: A client of the cluster.
        group: Its id; it needs no members.
        patience_ms: How long to wait for an unfinished transaction that holds an offset; None: what was committed
            before it counts.

    Raises:
        BrokerError: UNSTABLE_OFFSET_COMMIT after `patience_ms`, or as the coordinator answered.
        UnsupportedVersionError: The brokers are older than Kafka 2.5.
    """
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=patience_ms is not None)
    left_ms = patience_ms or 0
    coordinator: int | None = None
    wait_ms, moved_ms = _FIRST_WAIT_MS, 0
    while True:
        if coordinator is None:
            coordinator = find_coordinator(client, group, GROUP)
        try:
            answer: OffsetFetchResponse = client.ask(request, coordinator, STABLE_VERSION)
            code = _code_of(answer)
        except ConnectionLostError:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # it has gone: look for the next one
        if not code:
            return _committed(answer)
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            left_ms -= wait_ms
            has_ended = left_ms < 0
        else:
            coordinator, moved_ms = None, moved_ms + wait_ms
            has_ended = moved_ms > _MOST_MOVES_MS or not describe(code).retriable
        if has_ended:
            raise error_for(code, f"committed offsets of group {group!r}")
        client.wait(wait_ms)
        wait_ms = min(2 * wait_ms, _LONGEST_WAIT_MS)


def offsets_before(client: ClusterClient, group: str, node_id: int) -> CommittedOffsets:
    """Return what was committed before the offsets that are pending at a node; the guard.

    Args:
        client: A client of the cluster.
        group: Its id.
        node_id: The coordinator that has taken the pending offsets.

    Raises:
        BrokerError, ConnectionLostError: It does not coordinate the group any more, or did not answer: the pending
            offsets must be sent again, and the guard asked again.
    """
    if not client.knows(node_id):
        client.metadata([])
    answer: OffsetFetchResponse = client.ask(OffsetFetchRequest(group_id=group, topics=None), node_id, STABLE_VERSION)
    code = _code_of(answer)
    if code:
        raise error_for(code, f"committed offsets of group {group!r}")
    return _committed(answer)


def read_mark(client: ClusterClient, name: str, patience_ms: int) -> Mark | None:
    """Return the mark of a write; None: there is none. Arguments and errors as `read_offsets`, and as `mark_in`."""
    return mark_in(read_offsets(client, name, patience_ms), name)


def mark_in(offsets: CommittedOffsets, name: str) -> Mark | None:
    """Return the mark among the offsets of a write's group.

    Raises:
        ConfigError: Something else uses the group.
    """
    if len(offsets) > 1:
        raise ConfigError(
            f"group {name!r} has offsets of {len(offsets)} partitions, and the mark of a write is one: something else "
            "uses this group. Set another write_prefix"
        )
    return next((Mark.from_text(each.metadata, name) for each in offsets.values()), None)


def is_moved(error: Exception) -> bool:
    """Whether the guard must be asked again, at another node."""
    return isinstance(error, ConnectionLostError) or (isinstance(error, BrokerError) and describe(error.code).retriable)


def _code_of(answer: OffsetFetchResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return answer.error_code or next(filter(None, codes), 0)


def _committed(answer: OffsetFetchResponse) -> CommittedOffsets:
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(each.committed_offset, each.metadata or "")
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }
