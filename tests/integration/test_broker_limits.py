"""Limits on connections and time, a broken control thread, the command line."""

from __future__ import annotations

import logging
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import list_topics
from kafkaprod.broker.config import BrokerConfig, Limits
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.server import admission
from kafkaprod.broker.server import server as server_module
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.frames import encode_request
from kafkaprod.protocol.long_messages import shorten_messages
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkaprod.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafkaprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaprod.protocol.schema import Request, Response
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.clock import Stopwatch
from tests.support.net.raw_client import RawClient


class Running:
    """A broker in a thread of this process; `is_clean` is what its `run` returned."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.bootstrap_servers = "{}:{}".format(*server.broker.endpoint)
        self.is_clean: bool | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.is_clean = self.server.run()


@contextmanager
def running(data_dir: Path, **options: Any) -> Iterator[Running]:
    broker = Running(BrokerServer(BrokerConfig(data_dir=str(data_dir / "data"), port=0, **options)))
    broker.thread.start()
    try:
        yield broker
    finally:
        broker.server.stop()
        broker.thread.join()


def is_served(client: RawClient) -> bool:
    return client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_connection_above_the_limit_is_closed_at_once(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_connections=3)) as broker:
        clients = [RawClient(broker.bootstrap_servers) for _ in range(3)]
        assert all(is_served(client) for client in clients)
        with RawClient(broker.bootstrap_servers) as refused:
            assert refused.is_closed_by_broker()
        assert all(is_served(client) for client in clients)
        clients.pop().close()

        def is_free_again() -> bool:
            with RawClient(broker.bootstrap_servers) as client:
                try:
                    return is_served(client)
                except ConnectionError:
                    return False

        wait_until(is_free_again, "a place after a client left")
        for client in clients:
            client.close()


def test_idle_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_OVERDUE_CHECK_MS", 20)
    with (
        running(tmp_path, limits=Limits(max_idle_ms=300)) as broker,
        RawClient(broker.bootstrap_servers) as idle,
        RawClient(broker.bootstrap_servers) as half,
        RawClient(broker.bootstrap_servers) as busy,
    ):
        is_served(idle)
        half.socket.sendall(b"\0\0")  # the beginning of a frame is no sign of life
        deadline_s = time.monotonic() + 0.6
        while time.monotonic() < deadline_s:
            assert is_served(busy)
        assert idle.is_closed_by_broker()
        assert half.is_closed_by_broker()
        assert is_served(busy)


def test_one_address_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_connections_per_ip=2)) as broker:
        with RawClient(broker.bootstrap_servers) as first, RawClient(broker.bootstrap_servers) as second:
            assert is_served(first)
            assert is_served(second)
            with RawClient(broker.bootstrap_servers) as refused:
                assert refused.is_closed_by_broker()
            assert is_served(first)

        def is_free_again() -> bool:
            with RawClient(broker.bootstrap_servers) as client:
                try:
                    return is_served(client)
                except ConnectionError:
                    return False

        wait_until(is_free_again, "a place after a client left")


def test_login_has_a_deadline_that_requests_do_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_OVERDUE_CHECK_MS", 20)
    monkeypatch.setattr(admission, "LOGIN_MS", 300)
    with running(tmp_path, sasl_users={"ada": "lovelace"}) as broker:
        waited = Stopwatch()
        with RawClient(broker.bootstrap_servers) as stranger:
            while is_open(stranger):
                assert waited.ms < 20_000
        assert 300 <= waited.ms < 20_000


def test_strangers_cannot_take_all_places(tmp_path: Path) -> None:
    with running(tmp_path, sasl_users={"ada": "lovelace"}, limits=Limits(max_connections=8)) as broker:
        options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        options |= {"sasl_username": "ada", "sasl_password": "lovelace", "bootstrap_servers": broker.bootstrap_servers}
        strangers = [RawClient(broker.bootstrap_servers) for _ in range(20)]
        assert is_open(strangers[-1])  # so all have been accepted
        assert sum(is_open(client) for client in strangers) <= 4
        with ClusterClient(ProducerConfig.from_options(options)) as known:
            assert list_topics(known) == []
            strangers += [RawClient(broker.bootstrap_servers) for _ in range(20)]
            assert list_topics(known) == []
        for client in strangers:
            client.close()


def is_open(client: RawClient) -> bool:
    try:
        return is_served(client)
    except ConnectionError:
        return False


def test_silent_connection_makes_room_for_a_newcomer(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(max_connections=2)) as broker, RawClient(broker.bootstrap_servers) as busy:
        assert is_served(busy)
        with RawClient(broker.bootstrap_servers) as silent:

            def is_newcomer_served() -> bool:
                with RawClient(broker.bootstrap_servers) as client:
                    return is_open(client)

            wait_until(is_newcomer_served, "the place of a connection that never asked for anything")
            assert silent.is_closed_by_broker()
        assert is_served(busy)


MIB = 1 << 20


def test_half_sent_requests_of_all_clients_share_one_budget(tmp_path: Path) -> None:
    limits = Limits(max_request_bytes=16 * MIB, max_other_request_bytes=16 * MIB, max_queued_bytes=48 * MIB)
    request = b"".join(map(bytes, encode_request(ApiVersionsRequest(), 0, 1, "large")))[4:].ljust(12 * MIB, b"\0")
    frame = struct.pack(">i", len(request)) + request
    with running(tmp_path, limits=limits) as broker:
        budget = broker.server._budget
        clients = [RawClient(broker.bootstrap_servers) for _ in range(12)]
        halves = [threading.Thread(target=client.socket.sendall, args=(frame[:-1],)) for client in clients]
        for half in halves:
            half.start()
        wait_until(lambda: budget.is_scarce, "the budget to be used up")
        with RawClient(broker.bootstrap_servers) as honest:
            for _ in range(100):
                assert is_served(honest)
                assert budget.held_bytes <= 48 * MIB
        # Each gets its turn, in the order in which they began.
        lasts = [
            threading.Thread(target=lambda half=half, client=client: (half.join(), client.socket.sendall(frame[-1:])))
            for half, client in zip(halves, clients, strict=True)
        ]
        for last in lasts:
            last.start()
        for client in clients:
            client.receive_frame()
            assert budget.held_bytes <= 48 * MIB
            client.close()
        for thread in halves + lasts:
            thread.join()
        wait_until(lambda: budget.held_bytes == 0, "the budget to be free")


def test_request_that_never_ends_is_given_up_while_memory_is_scarce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_OVERDUE_CHECK_MS", 20)
    monkeypatch.setattr(admission, "FRAME_MS", 300)
    limits = Limits(max_request_bytes=4 * MIB, max_queued_bytes=8 * MIB)
    with running(tmp_path, limits=limits) as broker:
        frame = struct.pack(">i", 4 * MIB) + bytes(3 * MIB)
        clients = [RawClient(broker.bootstrap_servers) for _ in range(6)]
        senders = [threading.Thread(target=send_as_far_as_taken, args=(client, frame)) for client in clients]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        wait_until(lambda: broker.server._budget.held_bytes < 2 * MIB, "the half requests to go")
        for client in clients:
            client.close()


def send_as_far_as_taken(client: RawClient, frame: bytes) -> None:
    with suppress(ConnectionError):
        client.socket.sendall(frame)


def test_broker_out_of_descriptors_serves_those_it_has_and_takes_others_later(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.bootstrap_servers) as known:
        assert is_served(known)
        highest = max(int(name) for name in os.listdir(f"/proc/{broker.pid}/fd"))
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (highest + 3, highest + 3))
        clients = [RawClient(broker.bootstrap_servers) for _ in range(10)]  # the kernel accepts them for the broker
        assert is_served(clients[0])
        assert is_served(known)
        for client in clients[:9]:
            client.close()
        assert is_served(clients[9])
        clients[9].close()


def test_flush_policy_each_answers_many_producers(tmp_path: Path) -> None:
    with running(tmp_path, topics={"orders": 1}, flush_policy=each()) as broker:
        clients = [RawClient(broker.bootstrap_servers) for _ in range(8)]
        data = [PartitionProduceData(index=0, records=make_batch())]
        request = ProduceRequest(
            acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="orders", partition_data=data)]
        )
        for _ in range(5):
            for client in clients:
                client.send(request, 9)
            for client in clients:
                answer = client.receive(ProduceResponse, 9)[1]
                assert answer.responses[0].partition_responses[0].error_code == 0
        log = broker.server.broker.topics.get("orders").partitions[0].log  # type: ignore[union-attr]
        assert log.recovery_point == log.log_end_offset == 40
        for client in clients:
            client.close()
    assert broker.is_clean


def test_dead_control_thread_stops_the_broker_uncleanly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    with running(tmp_path) as broker, caplog.at_level(logging.CRITICAL):
        with RawClient(broker.bootstrap_servers) as client:
            assert is_served(client)
            broker.server.submit_control(fail)
            client.send(FindCoordinatorRequest(key="g"), 1)
            assert client.is_closed_by_broker()
        broker.thread.join(30)
    assert broker.is_clean is False
    assert "the control thread died" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"port": 70_000}, "port=70000"),
        ({"port": -1}, "port=-1"),
        ({"num_partitions": 0}, "num_partitions=0"),
        ({"node_id": -1}, "node_id=-1"),
    ],
)
def test_impossible_configuration_raises(change: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(data_dir="x", **change)  # type: ignore[arg-type]


def start_command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kafkaprod", "broker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_serves_until_a_signal_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = start_command("--data-dir", str(tmp_path / "data"), "--port", "0", "--topic", "orders:3", "--topic", "x")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on 127.0.0.1:")
    with RawClient(line.split()[2].rstrip(",")) as client:
        assert is_served(client)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "")
    assert errors.startswith(f"`kill {process.pid}` stops it")
    assert errors.count("\n") == 1
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "data" / "orders-2").is_dir()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--flush", "often"], 2, "flush policy 'often'"),
        (["--topic", "a:many"], 2, "'many' is not a number"),
        (["--tls-cert", "x.pem"], 2, "--tls-key"),
        (["--host", "203.0.113.7"], 1, "Cannot assign requested address"),
        (["--sasl-users", "/no/such/file"], 1, "No such file"),
    ],
)
def test_command_says_in_one_line_why_it_cannot_start(
    tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    process = start_command("--data-dir", str(tmp_path / "data"), "--port", "0", *arguments)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (status, "")
    assert errors.startswith("kafkaprod broker: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_names_of_strangers_do_not_forge_lines_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "x\n2026-11-22 ERROR everything is lost\x1b[31m"
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=make_batch())])]
    with running(tmp_path) as broker, RawClient(broker.bootstrap_servers) as stranger:
        stranger.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=data), 9)
        assert stranger.is_closed_by_broker()
    assert any("everything is lost" in record.getMessage() for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_names_as_long_as_texts_may_be_are_refused_with_a_short_message() -> None:
    name = "n" * 32_767
    long_names: list[tuple[Request, type[Response]]] = [
        (DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])]), DescribeProducersResponse),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1), DeleteTopicsResponse),
        (DescribeClientQuotasRequest(components=[ComponentData(entity_type=name)]), DescribeClientQuotasResponse),
    ]
    with EmbeddedBroker() as broker, RawClient(broker.bootstrap_servers) as client:
        for request, response_class in long_names:
            answer = client.call(request, response_class, request.versions[1])
            assert 'nnn..."' in str(answer).replace("'", '"')
            assert not shorten_messages(answer)
