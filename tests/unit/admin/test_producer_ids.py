"""A producer id is asked for again while brokers have none yet, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.producer_ids import MAX_TRIES, new_producer_id
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdResponse


class Cluster(ClusterClient):
    """Answers with these codes, one after the other."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.waits = 0

    def ask(self, request: Any, node_id: int | None = None, version: int | None = None) -> Any:
        return InitProducerIdResponse(error_code=self.codes.pop(0), producer_id=7, producer_epoch=2)

    def wait(self, timeout_ms: int) -> None:
        self.waits += 1


def test_a_broker_that_has_no_ids_yet_is_asked_again() -> None:
    cluster = Cluster(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)
    assert new_producer_id(cluster) == (7, 2)
    assert cluster.waits == 2


@pytest.mark.parametrize(
    ("codes", "waits"),
    [
        ([ErrorCode.CLUSTER_AUTHORIZATION_FAILED], 0),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * (MAX_TRIES + 1), MAX_TRIES),
    ],
)
def test_a_refusal_is_an_error_at_once_and_a_silent_start_after_a_while(codes: list[int], waits: int) -> None:
    cluster = Cluster(*codes)
    with pytest.raises(KafkaError):
        new_producer_id(cluster)
    assert (cluster.waits, cluster.codes) == (waits, [])
