"""The answers on one connection come in the order of its requests, also while the partition's leader changes.

Two connections are another matter, here as in Kafka: a batch that its old leader wrote, and refuses because another one
leads now, is acknowledged by the new leader when it is sent again; a later batch that went there at once is first. The
log is in order.
"""

from __future__ import annotations

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

VERSION = 9
REQUESTS = 40
PRODUCER_ID = 900_000


@pytest.mark.parametrize("way", ["move", "stop", "and back"])
def test_answers_come_in_order_while_the_leader_changes(way: str) -> None:
    with EmbeddedCluster(brokers=2, session_timeout_ms=60_000, replica_lag_ms=60_000) as cluster:
        cluster.create_topic("orders", assignment=[[1, 2]])
        cluster.wait_until_in_sync()
        with RawClient(cluster.broker(1).address) as client:
            with cluster.broker(2).pause():  # the first request waits for its replica, the others behind it
                sent = [client.send(request(number), VERSION) for number in range(REQUESTS)]
                if way == "stop":
                    cluster.broker(1).tell({"command": "stop"})
            if way != "stop":
                cluster.move_leader("orders", 0, to=2)
            if way == "and back":
                cluster.move_leader("orders", 0, to=1)
            answered, errors = [], []
            for _ in range(REQUESTS):
                try:
                    correlation_id, response = client.receive(ProduceResponse, VERSION)
                except ConnectionError:
                    break  # the broker has stopped
                answered.append(correlation_id)
                errors.append(response.responses[0].partition_responses[0].error_code)
        assert answered == sent[: len(answered)]
        assert set(errors) <= {
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.REQUEST_TIMED_OUT,
        }
        if way != "stop":
            assert len(answered) == REQUESTS
        if way == "move":  # what is refused once is refused by this leader from then on
            refused = [error != ErrorCode.NONE for error in errors]
            assert refused == sorted(refused)


def request(number: int) -> ProduceRequest:
    """Return one request of an idempotent producer."""
    batch = make_batch([b"%d" % number], producer_id=PRODUCER_ID, epoch=0, sequence=number)
    return produce_request(batch, topic="orders", partition=0, acks=-1)
