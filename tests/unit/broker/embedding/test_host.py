"""The host of a cluster: what it refuses, whose ports it keeps, and that its children end with it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        yield running


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"command": "dance"}, "unknown command 'dance'"),
        ({"command": "kill", "name": "7"}, "process 7 does not run"),
        ({"command": "start", "name": "1"}, "process 1 runs already"),
        ({"command": "start", "name": "7"}, "7"),
        ({"command": "links"}, "cuts"),
        ({"command": "tell", "name": "1", "what": {"command": "nonsense"}}, "process 1 answered"),
        ({"command": "tell", "name": "controller", "what": {"command": "nonsense"}}, "unknown command"),
    ],
)
def test_wrong_commands_are_refused_and_change_nothing(
    cluster: EmbeddedCluster, command: dict[str, object], message: str
) -> None:
    before = cluster.ask({"command": "processes"})
    with pytest.raises(EmbeddedBrokerError, match=message):
        cluster.ask(command)
    assert cluster.ask({"command": "processes"}) == before


def test_a_paused_process_is_not_asked(cluster: EmbeddedCluster) -> None:
    broker = cluster.brokers[0]
    broker.pause()
    try:
        with pytest.raises(EmbeddedBrokerError, match="process 1 is paused"):
            broker.tell({"command": "replicas"})
    finally:
        broker.resume()
    assert broker.tell({"command": "replicas"}) == {}


def test_the_port_of_a_broker_that_is_down_is_refused_and_kept(cluster: EmbeddedCluster) -> None:
    broker = cluster.brokers[0]
    broker.kill()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port), 5).close()
        with socket.socket() as other, pytest.raises(OSError) as taken:
            other.bind(("127.0.0.1", broker.port))
        assert taken.value.errno == errno.EADDRINUSE
    finally:
        broker.start()
    cluster.wait_for(lambda view: view.active_brokers == [1])


def test_a_death_is_reported_at_once(cluster: EmbeddedCluster) -> None:
    os.kill(cluster.brokers[0].pid, signal.SIGKILL)  # not by the host
    cluster.wait_for(lambda view: view.active_brokers == [])
    cluster.brokers[0].start()
    cluster.wait_for(lambda view: view.active_brokers == [1])


def test_children_end_with_their_host() -> None:
    cluster = EmbeddedCluster(brokers=2).start()
    pids = list(cluster.ask({"command": "processes"})["pids"].values())
    assert cluster._host is not None
    os.kill(cluster._host.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cluster.close()


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
