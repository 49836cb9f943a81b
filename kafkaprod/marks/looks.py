"""Reading the mark of a write from the offsets of its group.

A coordinator answers from its memory. One that was paused, and deposed meanwhile, answers "no offset" for a mark that
was committed at the next one. So a look before the rows can only be a reason to do nothing; the *guard* decides: the
look at the node that has just taken the pending mark, which had every mark before it.
"""

from __future__ import annotations

from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import GROUP, find_coordinator
from kafkaprod.admin.groups import STABLE_VERSION
from kafkaprod.errors import BrokerError, ConfigError, ConnectionLostError
from kafkaprod.marks.mark import Mark
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_FIRST_WAIT_MS: Final = 2
_LONGEST_WAIT_MS: Final = 100
_MOST_MOVES_MS: Final = 10_000


def read_mark(client: ClusterClient, name: str, patience_ms: int) -> Mark | None:
    """Return the mark that finished transactions have left; None: there is none.

    Args:
        client: A client of the cluster.
        name: The group.
        patience_ms: How long to wait for an unfinished transaction that holds a mark.

    Raises:
        BrokerError: UNSTABLE_OFFSET_COMMIT after `patience_ms`, or as the coordinator answered.
        ConfigError: Something else uses the group.
    """
    request = OffsetFetchRequest(group_id=name, topics=None, require_stable=True)
    coordinator: int | None = None
    wait_ms, moved_ms = _FIRST_WAIT_MS, 0
    while True:
        if coordinator is None:
            coordinator = find_coordinator(client, name, GROUP)
        try:
            answer: OffsetFetchResponse = client.ask(request, coordinator, STABLE_VERSION)
            code = _code_of(answer)
        except ConnectionLostError:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # it has gone: look for the next one
        if not code:
            return _mark_in(answer, name)
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            patience_ms -= wait_ms
            has_ended = patience_ms < 0
        else:
            coordinator, moved_ms = None, moved_ms + wait_ms
            has_ended = moved_ms > _MOST_MOVES_MS or not describe(code).retriable
        if has_ended:
            raise error_for(code, f"mark of group {name!r}")
        client.wait(wait_ms)
        wait_ms = min(2 * wait_ms, _LONGEST_WAIT_MS)


def mark_before(client: ClusterClient, name: str, coordinator: int) -> Mark | None:
    """Return the mark that was committed before the one that is pending at this coordinator; the guard.

    Args:
        client: A client of the cluster.
        name: The group.
        coordinator: The node that has taken the pending mark.

    Raises:
        BrokerError, ConnectionLostError: It does not coordinate the group any more, or did not answer: the pending mark
            must be sent again, and the guard asked again.
        ConfigError: Something else uses the group.
    """
    request = OffsetFetchRequest(group_id=name, topics=None, require_stable=False)
    if not client.knows(coordinator):
        client.metadata([])
    answer: OffsetFetchResponse = client.ask(request, coordinator, STABLE_VERSION)
    code = _code_of(answer)
    if code:
        raise error_for(code, f"mark of group {name!r}")
    return _mark_in(answer, name)


def is_moved(error: Exception) -> bool:
    """Whether the guard must be asked again, at another node."""
    return isinstance(error, ConnectionLostError) or (isinstance(error, BrokerError) and describe(error.code).retriable)


def _code_of(answer: OffsetFetchResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return answer.error_code or next(filter(None, codes), 0)


def _mark_in(answer: OffsetFetchResponse, name: str) -> Mark | None:
    texts = [
        partition.metadata or ""
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    ]
    if len(texts) > 1:
        raise ConfigError(
            f"group {name!r} has offsets of {len(texts)} partitions, and the mark of a write is one: something else "
            "uses this group. Set another write_prefix"
        )
    return Mark.from_text(texts[0], name) if texts else None
