"""Produce requests whose client has closed the connection before their turn came: they are not handled any more.

Their client has sent the batches again by then, to another broker, or by another producer epoch: librdkafka begins one
after a gap in the sequences. A broker that leads again by then would write them a second time.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.frames import encode_request
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_log import make_batch

VERSION = 9
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, session_timeout_ms=60_000, replica_lag_ms=60_000) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions that broker 1 leads and broker 2 follows."""
    name: str = request.node.name
    cluster.create_topic(name, assignment=[[1, 2], [1, 2]])
    cluster.wait_until_in_sync()
    return name


def connect(cluster: EmbeddedCluster) -> contextlib.closing[socket.socket]:
    """Return a connection to broker 1, which the end of a `with` block closes."""
    return contextlib.closing(socket.create_connection(("127.0.0.1", cluster.broker(1).port)))


def frame(topic: str, partition: int, acks: int = -1) -> bytes:
    """Return a produce request with one record of an idempotent producer."""
    batch = make_batch([b"late"], producer_id=900_000, epoch=0, sequence=0)
    request = produce_request(batch, topic=topic, partition=partition, acks=acks)
    return b"".join(map(bytes, encode_request(request, VERSION, 1)))


def ends(cluster: EmbeddedCluster, topic: str, partition: int) -> list[int]:
    """Return the log ends of a partition."""
    return [end for _, _, end in cluster.replicas(topic, partition).values()]


def wait_for_ends(cluster: EmbeddedCluster, topic: str, partition: int, wanted: int) -> None:
    """Wait until both replicas end at an offset."""
    cluster.wait_for(lambda _: ends(cluster, topic, partition) == [wanted, wanted], PATIENCE_S)


def send(cluster: EmbeddedCluster, topic: str, partition: int) -> int:
    """Send a record by another producer; return its offset."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        return producer.send(topic, b"new", partition=partition).result(PATIENCE_S).offset


def test_a_request_behind_one_that_waits_for_replicas_goes_with_its_client(
    cluster: EmbeddedCluster, topic: str
) -> None:
    with cluster.broker(2).pause():
        with connect(cluster) as connection:
            connection.sendall(frame(topic, 1) + frame(topic, 0))
            cluster.wait_for(lambda _: cluster.broker(1).tell({"command": "replicas"})[f"{topic}-1"][2] == 1)
        assert cluster.broker(1).tell({"command": "replicas"})[f"{topic}-0"][2] == 0
    wait_for_ends(cluster, topic, 1, 1)
    assert send(cluster, topic, 0) == 0
    wait_for_ends(cluster, topic, 0, 1)


def test_a_request_to_a_paused_broker_goes_with_its_client(cluster: EmbeddedCluster, topic: str) -> None:
    with cluster.broker(1).pause(), connect(cluster) as connection:
        connection.sendall(frame(topic, 0))
    assert send(cluster, topic, 0) == 0


def test_a_request_without_an_answer_is_handled_though_its_client_has_gone(
    cluster: EmbeddedCluster, topic: str
) -> None:
    with cluster.broker(1).pause(), connect(cluster) as connection:
        connection.sendall(frame(topic, 0, acks=0))
    wait_for_ends(cluster, topic, 0, 1)
