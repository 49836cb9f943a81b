"""The host of a cluster: what it refuses, whose ports it keeps, and that its children end with it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod.broker.cluster import member
from kafkaprod.broker.controller.requests import FORWARDED_VERSIONS
from kafkaprod.broker.embedding import host
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_child import prepare_to_fork
from kafkaprod.broker.embedding.commands import answer_to
from kafkaprod.broker.listeners import AddressError, parse_listeners
from kafkaprod.broker.replication.lifecycle import BrokerLifecycle
from kafkaprod.protocol import schema
from kafkaprod.protocol.messages.alter_partition import AlterPartitionRequest
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.fetch import FetchRequest
from tests.support.processes import runs


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
        if sys.platform == "linux":
            with socket.socket() as other, pytest.raises(OSError) as taken:
                other.bind(("127.0.0.1", broker.port))
            assert taken.value.errno == errno.EADDRINUSE
    finally:
        broker.start()
    cluster.wait_for(lambda view: view.active_brokers == [1])


@contextlib.contextmanager
def in_process(options: dict[str, Any]) -> Iterator[host.ProcessHost]:
    """A host in this process, whose signals are as before afterwards."""
    handler, wakeup_fd = signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)
    try:
        one = host.ProcessHost(options)
        yield one
        one.close()
        for end in (one._wake_receiver, one._wake_sender):
            end.close()
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        signal.signal(signal.SIGCHLD, handler)


def test_where_a_bound_port_cannot_be_bound_again_brokers_bind_theirs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_KEEPS_PORTS", False)
    brokers = {str(number): {"port": 0, "listeners": ""} for number in range(1, 30)}
    added = {"command": "add", "name": "30", "options": {"port": 0, "listeners": "PLAINTEXT://:0,O:PLAINTEXT://:0"}}
    with in_process({"brokers": brokers}) as chosen:
        for address in chosen.addresses.values():
            with socket.socket() as other:
                other.bind(("127.0.0.1", address["port"]))
        assert len({address["port"] for address in chosen.addresses.values()}) == len(brokers)
        listeners = parse_listeners(answer_to(added, chosen.handlers)["listeners"], "")
        assert [(each.name, each.host) for each in listeners] == [("PLAINTEXT", "127.0.0.1"), ("O", "127.0.0.1")]
        assert chosen.addresses["30"]["port"] == listeners[0].port
        for listener in listeners:
            with socket.socket() as other:
                other.bind(("127.0.0.1", listener.port))
        assert answer_to({"command": "remove", "name": "30"}, chosen.handlers) == {}
        assert "30" not in chosen.addresses


def test_a_port_in_use_is_named_and_the_others_are_released() -> None:
    with in_process({"brokers": {}}) as one, socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        text = f"PLAINTEXT://:0,OUTER:PLAINTEXT://:{used.getsockname()[1]}"
        with pytest.raises(AddressError, match="in use"):
            one._add({"name": "1", "options": {"port": 0, "listeners": text}})
        assert one._reserved == {}


def test_a_process_that_ends_before_it_could_answer_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_at_once(_: object, sock: socket.socket) -> int:
        sock.sendall(b"{}\n")
        return len(sock.recv(1000)) == 0  # without an answer

    monkeypatch.setattr(host, "run_controller", end_at_once)
    with in_process({"brokers": {}, "controller": {}}) as one:
        assert "pid" in answer_to({"command": "start", "name": "controller"}, one.handlers)
        assert answer_to({"command": "stop", "name": "controller"}, one.handlers) == {}
        assert answer_to({"command": "processes"}, one.handlers) == {"pids": {}}


def test_a_death_is_reported_at_once(cluster: EmbeddedCluster) -> None:
    os.kill(cluster.brokers[0].pid, signal.SIGKILL)  # not by the host
    cluster.wait_for(lambda view: view.active_brokers == [])
    cluster.brokers[0].start()
    cluster.wait_for(lambda view: view.active_brokers == [1])


def test_a_wait_ends_with_the_change_it_waits_for(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.broker.embedding.cluster_state._LOOK_S", 20.0)
    began_s = time.monotonic()
    cluster.brokers[0].kill()
    cluster.wait_for(lambda view: view.active_brokers == [])
    cluster.brokers[0].start()
    cluster.wait_for(lambda view: view.active_brokers == [1])
    cluster.wait_until_applied()
    assert time.monotonic() - began_s < 20.0


def test_what_brokers_send_at_their_start_is_compiled_before_the_fork() -> None:
    prepare_to_fork()
    compiled = schema._codec.cache_info().misses
    registration = BrokerLifecycle(1, "cluster", uuid.uuid4(), heartbeat_ms=500).next_request(0, 0)
    assert registration is not None
    for request in (registration, BrokerHeartbeatRequest(), AlterPartitionRequest()):
        request.encode(FORWARDED_VERSIONS[request.api])
    FetchRequest().encode(member._FETCH_VERSION)
    assert schema._codec.cache_info().misses == compiled


def test_children_end_with_their_host() -> None:
    cluster = EmbeddedCluster(brokers=2).start()
    pids = list(cluster.ask({"command": "processes"})["pids"].values())
    os.kill(cluster._host.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cluster.close()
