"""Marks are read of whoever coordinates their group now, and an error is never taken for no mark."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.admin.client import ClusterClient
from kafkaprod.errors import BrokerError, ConnectionLostError
from kafkaprod.marks import looks
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkaprod.structs import TopicPartition

PARTITION = TopicPartition("orders", 3)


def answer(*, code: int = 0, partition_code: int = 0) -> OffsetFetchResponse:
    one = OffsetFetchResponsePartition(
        partition_index=3, committed_offset=-1 if partition_code else 9, metadata="m", error_code=partition_code
    )
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=[one])], error_code=code)


class Cluster(ClusterClient):
    """Brokers that answer what a test says: the group's coordinator by node, and how it moves."""

    def __init__(self, *answers: tuple[int, OffsetFetchResponse | ConnectionLostError]) -> None:
        self.answers = list(answers)
        self.asked: list[int | None] = []
        self.waited_ms = 0

    def ask(self, request: Any, node_id: int | None = None, version: int | None = None) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=self.answers[0][0], host="broker", port=9092)
        self.asked.append(node_id)
        _, given = self.answers.pop(0)
        if isinstance(given, ConnectionLostError):
            raise given
        return given

    def knows(self, node_id: int, host: str | None = None, port: int | None = None) -> bool:
        return True

    def wait(self, timeout_ms: int) -> None:
        self.waited_ms += timeout_ms


@pytest.mark.parametrize(
    "first",
    [
        answer(code=ErrorCode.NOT_COORDINATOR),
        answer(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        answer(partition_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ConnectionLostError("it has gone"),
    ],
)
def test_a_coordinator_that_has_moved_is_looked_for(first: OffsetFetchResponse | ConnectionLostError) -> None:
    cluster = Cluster((1, first), (2, answer()))
    assert looks.read_offsets(cluster, "g", None) == {PARTITION: looks.CommittedOffset(9, "m")}
    assert cluster.asked == [1, 2]


def test_an_offset_that_is_held_is_waited_for_where_it_is() -> None:
    held = answer(partition_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    cluster = Cluster((1, held), (2, held), (2, answer()))
    assert PARTITION in looks.read_offsets(cluster, "g", 1_000)
    assert cluster.asked == [1, 1, 1]
    with pytest.raises(BrokerError, match="UNSTABLE_OFFSET_COMMIT"):
        looks.read_offsets(Cluster(*[(1, held)] * 100), "g", 50)


@pytest.mark.parametrize("given", [{"code": ErrorCode.UNKNOWN_SERVER_ERROR}, {"partition_code": 3}])
def test_an_error_of_the_group_or_of_a_partition_is_not_no_mark(given: dict[str, int]) -> None:
    for look in (looks.read_offsets, looks.offsets_before):
        with pytest.raises(BrokerError, match="committed offsets of group 'g'"):
            look(Cluster(*[(1, answer(**given))] * 100_000), "g", 1)
