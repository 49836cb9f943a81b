"""The server's sockets before it serves."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.server.session import Session
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.net.transport import TcpTransport
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest
from kafkaprod.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.storage.disk import open_for_read
from tests.support.broker.hostile_settings import frame_of
from tests.support.net.raw_client import RawClient
from tests.support.processes import open_descriptors


@pytest.mark.filterwarnings("error")
def test_port_that_is_taken_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = BrokerConfig(data_dir=str(tmp_path / "data"), port=other.getsockname()[1])
        before = open_descriptors()
        with pytest.raises(OSError, match="in use"):
            BrokerServer(config)
        assert open_descriptors() == before
        assert not os.path.exists(config.data_dir)


def test_directory_that_is_in_use_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    before = open_descriptors()
    with pytest.raises(OSError, match="data"):
        BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0))
    assert open_descriptors() == before


def test_client_that_left_before_its_socket_was_set_up_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS refuses options of a socket whose peer is gone."""
    set_option = socket.socket.setsockopt

    def refuse(sock: socket.socket, *arguments: Any) -> None:
        if arguments[:2] == (socket.IPPROTO_TCP, socket.TCP_NODELAY):
            raise OSError(errno.EINVAL, "Invalid argument")
        set_option(sock, *arguments)

    server = BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "setsockopt", refuse)
            with socket.create_connection(server.broker.endpoint, 60) as client:
                assert client.recv(1) == b""
        with Producer(bootstrap_servers="{}:{}".format(*server.broker.endpoint)) as producer:
            producer.check(timeout=60)
    finally:
        server.stop()
        thread.join()


def test_a_turn_begins_one_large_request_behind_the_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ten clients whose requests take 0.3 s each would hold up all others for three."""
    partitions = [FetchPartition(partition=index) for index in range(5_000)]
    large = frame_of(FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="none", partitions=partitions)]), 11)
    small = frame_of(ApiVersionsRequest(), 0)
    server = BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0))
    turns: list[list[bool]] = []
    begin_next, turn = server._dispatcher.begin_next, server._turn

    def note(session: Session) -> None:
        turns[-1].extend(received.body.nbytes > 64 * 1024 for received in list(session.waiting)[:1])
        begin_next(session)

    def note_turn() -> None:
        turns.append([])
        turn()

    monkeypatch.setattr(server._dispatcher, "begin_next", note)
    monkeypatch.setattr(server, "_turn", note_turn)
    clients = [RawClient("{}:{}".format(*server.broker.endpoint)) for _ in range(8)]
    for number, client in enumerate(clients):  # before the server's first turn
        client.socket.sendall(large if number % 2 else small)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for client in clients:
            assert client.receive_frame()
            client.close()
    finally:
        server.stop()
        thread.join()
    assert sorted(is_large for each in turns for is_large in each) == [False] * 4 + [True] * 4
    assert [each for each in turns if each != sorted(each) or sum(each) > 1] == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_file_that_the_system_does_not_send_is_read_and_sent(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "sendfile", refuse)
    (tmp_path / "records").write_bytes(b"0123456789")
    records = FileSlice(open_for_read(str(tmp_path / "records")), 2, 5)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = Session(TcpTransport(ours), "host", {}, 1_000, 1_000, None, Endpoint("host", 1), 0)
        assert session._send_file(records, 2, 5) == 5
        assert theirs.recv(100) == b"23456"
        with pytest.raises(ConnectionAbortedError, match="was truncated"):
            session._send_file(records, 10, 1)


def test_small_requests_that_show_all_there_is_let_others_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ten clients that look at 20,000 ACLs would hold up all others for two seconds."""
    server = BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0))
    submit, seen = server.submit_control, list[bool]()

    def noted(work: Callable[[], None], *, may_be_long: bool = False) -> None:
        seen.append(may_be_long)
        submit(work, may_be_long=may_be_long)

    monkeypatch.setattr(server, "submit_control", noted)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with RawClient("{}:{}".format(*server.broker.endpoint)) as client:
            client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
            client.call(DescribeAclsRequest(), DescribeAclsResponse, 3)
            client.call(ListGroupsRequest(), ListGroupsResponse, 4)
    finally:
        server.stop()
        thread.join()
    assert seen == [False, True, True]
