from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.config.host_patterns import Hosts
from kafkaprod.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    IllegalStateError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.net import network as network_module
from kafkaprod.net import node as node_module
from kafkaprod.net.certificate_errors import is_certificate_error
from kafkaprod.net.node import HURRIED_MS, ConnectionStage
from kafkaprod.net.node_state import HEAD_START_MS, ConnectionFailure
from kafkaprod.net.pool import NodePool
from kafkaprod.net.transport import Address
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.security.kerberos import KerberosMechanism, Tickets
from kafkaprod.security.sasl import PlainMechanism
from kafkaprod.security.scram import ScramMechanism
from kafkaprod.security.tls import client_context
from kafkaprod.structs import Node
from tests.support.broker.broker_thread import BrokerThread
from tests.support.clock import ManualClock
from tests.support.config import connection_settings, unchecked_config
from tests.support.net.certificates import Authority
from tests.support.net.fake_broker import FakeBroker, Received, response
from tests.support.net.fake_kerberos import FakeKerberos, KerberosBroker, MissingCredentialsError
from tests.support.net.outcomes import outcome_token

PRODUCE = 0
MakePool = Callable[..., NodePool]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000_000)


@pytest.fixture
def make_pool(clock: ManualClock) -> Iterator[MakePool]:
    pools: list[NodePool] = []

    def make(**settings: Any) -> NodePool:
        pools.append(NodePool(connection_settings(**settings), clock, random=lambda: 0.5))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def turn(pool: NodePool, until: Callable[[], Any], turns: int = 500) -> list[InFlightRequest]:
    """Poll until `until()` is true; return everything that came out."""
    finished: list[InFlightRequest] = []
    for _ in range(turns):
        if until():
            return finished
        finished += pool.poll(20)
    raise AssertionError("it does not happen")


def until_ready(pool: NodePool, clock: ManualClock, node_id: int = -1) -> None:
    turn(pool, lambda: pool.is_ready(node_id, clock.now_ms()))


def receive(pool: NodePool, count: int) -> list[InFlightRequest]:
    finished: list[InFlightRequest] = []
    for _ in range(500):
        if len(finished) >= count:
            return finished
        finished += pool.poll(20)
    raise AssertionError(f"{len(finished)} finished, expected {count}")


def until_failed(pool: NodePool, clock: ManualClock, node_id: int = -1) -> Any:
    failures: list[Any] = []

    def has_failed() -> bool:
        failures.extend(pool.take_failures())
        return bool(failures)

    pool.is_ready(node_id, clock.now_ms())
    turn(pool, has_failed)
    return failures[0]


def produce(pool: NodePool, node_id: int, token: Any, body: Any = b"body", **options: Any) -> None:
    buffers = body if isinstance(body, list) else [body]
    size = sum(map(len, buffers))
    arguments: dict[str, Any] = {"now_ms": 1_000_000, "timeout_ms": 30_000} | options
    pool.send_body(node_id, PRODUCE, 9, buffers, size, on_done=token, **arguments)


def echoing(**options: Any) -> Callable[[], FakeBroker]:
    return lambda: FakeBroker(handlers={PRODUCE: lambda request: b"re:" + request.body}, **options)


def dead_port() -> int:
    """A port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# -- requests ----------------------------------------------------------------------------------------------------------


def test_requests_are_answered_over_a_real_socket(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool(client_id="me")
        pool.set_bootstrap([server.address])
        assert not pool.is_ready(-1, clock.now_ms())
        until_ready(pool, clock)
        assert pool.api_version(-1, PRODUCE, 3, 13) == 11
        produce(pool, -1, "a")
        produce(pool, -1, "b")
        assert pool.in_flight_count(-1) == 2
        finished = receive(pool, 2)
        assert [(c.node_id, c.on_done, bytes(c.body or b""), c.error) for c in finished] == [
            (-1, "a", b"re:body", None),
            (-1, "b", b"re:body", None),
        ]
        assert server.brokers[0].requests[0].client_id == "me"
        metrics = pool.metrics()[-1]
        assert (metrics.requests_sent, metrics.responses_received) == (2, 2)
        assert metrics.bytes_sent > 0
        assert metrics.bytes_received > 0
        pool.close()


def test_a_declared_request_is_sent_in_the_highest_common_version(make_pool: MakePool, clock: ManualClock) -> None:
    def answer(request: Received) -> bytes:
        assert request.version == 1
        return struct.pack(">ihqh", 0, 0, 77, 1)

    ranges = {18: (0, 4), 22: (0, 1), 0: (0, 9)}
    with BrokerThread(lambda: FakeBroker(ranges=ranges, handlers={22: answer})) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        pool.send(-1, request, on_done=outcome_token("t"), now_ms=clock.now_ms(), timeout_ms=1000)
        (done,) = receive(pool, 1)
        assert done.version == 1
        assert done.response.producer_id == 77
        with pytest.raises(UnsupportedVersionError):
            pool.send_body(-1, PRODUCE, 10, [b""], 0, on_done=outcome_token(1), now_ms=0, timeout_ms=1)
        pool.close()


def test_a_request_no_version_of_which_is_common_is_refused(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(lambda: FakeBroker(ranges={18: (0, 4)})) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        pool.send(-1, request, on_done=outcome_token("t"), now_ms=clock.now_ms(), timeout_ms=1000)
        (refused,) = pool.poll(1000)
        assert isinstance(refused.error, UnsupportedVersionError)
        assert "InitProducerIdRequest" in str(refused.error)
        pool.close()


def test_sending_to_a_node_that_is_not_ready_raises(make_pool: MakePool) -> None:
    pool = make_pool()
    pool.set_bootstrap([("127.0.0.1", dead_port())])
    for node_id in (-1, 5):
        with pytest.raises(IllegalStateError, match="not ready"):
            produce(pool, node_id, "t")


def test_a_large_chain_arrives_byte_exact_through_a_small_send_buffer(make_pool: MakePool, clock: ManualClock) -> None:
    chain = [os.urandom(16_384) for _ in range(60)] + [b"x" * 7]
    received: list[bytes] = []

    def keep(request: Received) -> bytes:
        received.append(request.body)
        return b"ok"

    with BrokerThread(lambda: FakeBroker(handlers={PRODUCE: keep})) as server:
        pool = make_pool(send_buffer_bytes=4096)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "t", chain)
        assert not pool.is_ready(-1, clock.now_ms())  # the request is not fully written
        (done,) = receive(pool, 1)
        assert done.error is None
        assert received == [b"".join(chain)]
        pool.close()


def test_a_request_without_response_completes_when_written(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "t", expects_response=False)
        (done,) = receive(pool, 1)
        assert (done.on_done, done.error, done.body) == ("t", None, None)
        pool.close()


def test_the_in_flight_limit_holds(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server:  # never answers Produce
        pool = make_pool(max_in_flight_requests_per_connection=2)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "a")
        assert pool.is_ready(-1, clock.now_ms())
        produce(pool, -1, "b")
        assert not pool.is_ready(-1, clock.now_ms())
        assert pool.ready_delay_ms(-1, clock.now_ms()) is None
        pool.close()


# -- loss --------------------------------------------------------------------------------------------------------------


def test_a_reset_fails_requests_in_order_with_the_socket_closed_first(make_pool: MakePool, clock: ManualClock) -> None:
    resets: list[Any] = []

    def cut(request: Received) -> None:
        server.reset(server.brokers[0])
        resets.append(request)

    with BrokerThread(lambda: FakeBroker(handlers={PRODUCE: cut})) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        records = bytearray(100)
        produce(pool, -1, "a", [memoryview(records)])
        produce(pool, -1, "b")
        finished = receive(pool, 2)
        records.append(0)  # nobody holds the buffer any more
        assert [done.on_done for done in finished] == ["a", "b"]
        assert all(isinstance(done.error, ConnectionLostError) for done in finished)
        assert finished[0].is_possibly_persisted
        assert pool.connection_count == 0
        (failure,) = pool.take_failures()
        assert (failure.stage, failure.node.node_id) == (ConnectionStage.READY, -1)
        assert pool.take_failures() == []
        assert not pool.is_ready(-1, clock.now_ms())
        assert pool.connection_count == 0  # backing off
        assert pool.ready_delay_ms(-1, clock.now_ms()) == 50
        clock.advance(50)
        until_ready(pool, clock)
        assert len(server.brokers) == 2
        pool.close()


def test_a_half_written_request_is_let_go_when_the_broker_dies(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server:
        pool = make_pool(send_buffer_bytes=4096)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        records = bytearray(50_000_000)  # more than any socket buffers hold
        pool.send_body(
            -1, PRODUCE, 9, [memoryview(records)], len(records), on_done=outcome_token("t"), now_ms=0, timeout_ms=10**9
        )
        pool.disconnect(-1, ConnectionLostError("test"))
        (done,) = pool.poll(0)
        records.append(0)
        assert not done.is_possibly_persisted
        assert done.error is not None
        pool.close()


def test_a_protocol_violation_closes_and_resolves_everything(make_pool: MakePool, clock: ManualClock) -> None:
    def wrong_id(request: Received) -> None:
        sock = server._connections[server.brokers[0]]
        sock.sendall(response(request, b"x", correlation_id=request.correlation_id + 1))

    with BrokerThread(lambda: FakeBroker(handlers={PRODUCE: wrong_id})) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "a")
        produce(pool, -1, "b")
        finished = receive(pool, 2)
        assert [(c.on_done, c.is_possibly_persisted) for c in finished] == [("a", True), ("b", True)]
        pool.close()


def test_one_overdue_answer_closes_that_connection_only(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as silent, BrokerThread(echoing()) as healthy:
        pool = make_pool()
        pool.set_bootstrap([silent.address, healthy.address])
        until_ready(pool, clock, -1)
        until_ready(pool, clock, -2)
        produce(pool, -1, "late", timeout_ms=1000)
        produce(pool, -1, "behind it", timeout_ms=30_000)
        clock.advance(999)
        assert pool.poll(0) == []
        clock.advance(1)
        finished = receive(pool, 2)
        assert [done.on_done for done in finished] == ["late", "behind it"]
        assert all(isinstance(done.error, RequestTimedOutError) for done in finished)
        produce(pool, -2, "fine")
        assert receive(pool, 1)[0].error is None
        pool.close()


def test_close_returns_what_was_in_flight_and_is_final(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "t")
        (done,) = pool.close()
        assert isinstance(done.error, ConnectionLostError)
        assert pool.close() == []
        pool.wakeup()
        with pytest.raises(IllegalStateError, match="closed"):
            pool.poll(0)


# -- connecting --------------------------------------------------------------------------------------------------------


def test_a_connect_is_refused_while_another_thread_imports_ssl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ssl", ModuleType("ssl"))
    assert not is_certificate_error(ConnectionRefusedError())
    with pytest.raises(ConfigError, match="ssl_context"):
        ProducerConfig.from_options({"bootstrap_servers": "127.0.0.1:9092", "ssl_context": 1})


def test_refused_connects_back_off_exponentially(make_pool: MakePool, clock: ManualClock) -> None:
    pool = make_pool(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1000)
    pool.set_bootstrap([("127.0.0.1", dead_port())])
    delays = []
    for _ in range(7):
        failure = until_failed(pool, clock)
        assert failure.stage is ConnectionStage.CONNECT
        delay = pool.ready_delay_ms(-1, clock.now_ms())
        assert delay is not None
        delays.append(delay)
        clock.advance(delay - 1)
        assert not pool.is_ready(-1, clock.now_ms())
        assert pool.connection_count == 0
        clock.advance(1)
    assert delays == [50, 100, 200, 400, 800, 1000, 1000]
    assert pool.metrics()[-1].connections_created == 7


def test_success_resets_the_backoff(make_pool: MakePool, clock: ManualClock) -> None:
    port = dead_port()
    pool = make_pool()
    pool.set_bootstrap([("127.0.0.1", port)])
    for _ in range(3):
        until_failed(pool, clock)
        clock.advance(1000)
    with BrokerThread() as server:
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        pool.disconnect(-1, ConnectionLostError("test"))
        assert pool.ready_delay_ms(-1, clock.now_ms()) == 50
        pool.close()


@pytest.fixture
def blackhole() -> Iterator[tuple[str, int]]:
    """Accepts connections in the kernel, never answers: the listener's backlog is all there is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


def test_the_setup_timeout_doubles_with_each_failure(
    make_pool: MakePool, clock: ManualClock, blackhole: tuple[str, int]
) -> None:
    pool = make_pool(socket_connection_setup_timeout_ms=10_000, socket_connection_setup_timeout_max_ms=30_000)
    pool.set_bootstrap([blackhole])
    for timeout_ms in (10_000, 20_000, 30_000, 30_000):
        turn(pool, lambda: pool.is_ready(-1, clock.now_ms()) or pool.metrics()[-1].bytes_sent)
        clock.advance(timeout_ms - 1)
        assert pool.poll(0) == []
        assert pool.take_failures() == []
        clock.advance(1)
        failure = until_failed(pool, clock)
        assert failure.stage is ConnectionStage.API_VERSIONS
        assert str(timeout_ms) in str(failure.error)
        pool.metrics()[-1].bytes_sent = 0
        clock.advance(1000)


def test_every_address_of_a_name_is_tried(
    make_pool: MakePool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread() as server:
        dead = [Address(socket.AF_INET, ("127.0.0.1", dead_port())) for _ in range(2)]
        alive = Address(socket.AF_INET, server.address)
        monkeypatch.setattr(node_module, "resolve", lambda host, port, family: [*dead, alive])
        pool = make_pool()
        pool.set_bootstrap([("kafka.test", 9092)])
        until_ready(pool, clock)
        assert pool.take_failures() == []
        pool.close()


def test_an_address_that_does_not_answer_gives_way_to_the_next(
    make_pool: MakePool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Address(socket.AF_INET, ("127.0.0.1", 1))
    with BrokerThread() as server:
        monkeypatch.setattr(
            node_module, "resolve", lambda host, port, family: [stuck, Address(socket.AF_INET, server.address)]
        )
        real = network_module.connecting_socket
        unconnected: list[socket.socket] = []

        def connecting(address: Address, **options: int) -> socket.socket:
            if address is not stuck:
                return real(address, **options)
            sock = socket.socket()  # never becomes connected, as behind a firewall that drops
            sock.setblocking(False)
            unconnected.append(sock)
            return sock

        monkeypatch.setattr(network_module, "connecting_socket", connecting)
        pool = make_pool(socket_connection_setup_timeout_ms=1000)
        pool.set_bootstrap([("kafka.test", 9092)])
        pool.is_ready(-1, clock.now_ms())
        turn(pool, lambda: unconnected)
        clock.advance(HURRIED_MS - 1)
        pool.poll(0)
        assert unconnected[0].fileno() >= 0
        clock.advance(1)
        until_ready(pool, clock)
        assert unconnected[0].fileno() == -1
        pool.close()


@pytest.fixture
def silent_address() -> Iterator[Address]:
    """An address that drops what begins to connect: its backlog is full."""
    with socket.socket() as server, contextlib.ExitStack() as clients:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield Address(socket.AF_INET, server.getsockname())


def test_a_silent_address_has_little_time_while_others_are_left_and_all_of_it_at_last(
    make_pool: MakePool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, silent_address: Address
) -> None:
    begun: list[Address] = []
    real = network_module.connecting_socket

    def connecting(address: Address, **options: int) -> socket.socket:
        begun.append(address)
        return real(address, **options)

    refusing = Address(socket.AF_INET, ("127.0.0.1", dead_port()))
    monkeypatch.setattr(node_module, "resolve", lambda host, port, family: [silent_address, refusing])
    monkeypatch.setattr(network_module, "connecting_socket", connecting)
    pool = make_pool(socket_connection_setup_timeout_ms=10_000)
    pool.set_bootstrap([("kafka.test", 9092)])
    pool.is_ready(-1, clock.now_ms())
    turn(pool, lambda: begun)
    clock.advance(HURRIED_MS - 1)
    pool.poll(0)
    assert begun == [silent_address]
    clock.advance(1)
    turn(pool, lambda: len(begun) == 3)
    assert begun == [silent_address, refusing, silent_address]
    clock.advance(9_999)
    pool.poll(0)
    assert pool.take_failures() == []
    clock.advance(1)
    failure = until_failed(pool, clock)
    assert "no answer within 10000 ms" in str(failure.error)


def test_an_unknown_name_fails_at_the_resolve_stage(
    make_pool: MakePool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(host: str, port: int, family: int) -> list[Address]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(node_module, "resolve", unknown)
    pool = make_pool()
    pool.set_bootstrap([("no.such.host", 9092)])
    failure = until_failed(pool, clock)
    assert failure.stage is ConnectionStage.RESOLVE
    assert isinstance(failure.error.__cause__, socket.gaierror)
    assert "no.such.host:9092" in str(failure.error)


def test_a_slow_resolver_delays_nobody_else(
    make_pool: MakePool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def slow(host: str, port: int, family: int) -> list[Address]:
        release.wait(30)
        return []

    monkeypatch.setattr(node_module, "resolve", slow)
    with BrokerThread(echoing()) as server:
        pool = make_pool()
        pool.set_bootstrap([("slow.test", 1), server.address])
        pool.is_ready(-1, clock.now_ms())
        until_ready(pool, clock, -2)
        produce(pool, -2, "t")
        assert receive(pool, 1)[0].error is None
        release.set()
        assert until_failed(pool, clock).stage is ConnectionStage.CONNECT
        pool.close()


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\0\x02\x02\x46", b""])
def test_a_peer_that_is_no_kafka_broker_is_named_as_such(
    make_pool: MakePool, clock: ManualClock, greeting: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool = make_pool()
        pool.set_bootstrap([listener.getsockname()])
        pool.is_ready(-1, clock.now_ms())
        peer, _ = listener.accept()
        peer.sendall(greeting)
        peer.shutdown(socket.SHUT_WR)
        failure = until_failed(pool, clock)
        peer.close()
        assert failure.stage is ConnectionStage.API_VERSIONS
        assert any(word in str(failure.error) for word in ("HTTP", "TLS", "security_protocol"))


@pytest.mark.parametrize(
    ("uses_tls", "ending"), [(False, "reset"), (True, "reset"), (True, "end"), (True, "plain")], ids=str
)
def test_mismatch_of_the_security_protocol_is_hinted_at_however_the_peer_ends_it(
    make_pool: MakePool, clock: ManualClock, uses_tls: bool, ending: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool = make_pool(tls=client_context(unchecked_config()) if uses_tls else None)
        pool.set_bootstrap([listener.getsockname()])
        pool.is_ready(-1, clock.now_ms())
        peer, _ = listener.accept()
        for _ in range(3):  # its first bytes are on their way
            pool.poll(20)
        if ending == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if ending == "plain":
            peer.sendall(b"\0\0\0\4\0\0\0\0")
        peer.close()
        failure = until_failed(pool, clock)
        protocol = "SSL" if uses_tls else "PLAINTEXT"
        assert f"does security_protocol={protocol} fit this port" in str(failure.error)
        pool.close()


def test_bootstrap_failures_name_host_stage_and_cause(
    make_pool: MakePool, clock: ManualClock, blackhole: tuple[str, int]
) -> None:
    port = dead_port()
    pool = make_pool(socket_connection_setup_timeout_ms=1000)
    pool.set_bootstrap([("127.0.0.1", port), blackhole])
    assert "none was tried" in str(pool.members.bootstrap_error())
    until_failed(pool, clock, -1)
    turn(pool, lambda: pool.is_ready(-2, clock.now_ms()) or pool.metrics()[-2].bytes_sent)
    clock.advance(1000)
    until_failed(pool, clock, -2)
    assert [(failure.node.port, failure.stage) for failure in pool.members.bootstrap_failures()] == [
        (port, ConnectionStage.CONNECT),
        (blackhole[1], ConnectionStage.API_VERSIONS),
    ]
    text = str(pool.members.bootstrap_error())
    assert f"127.0.0.1:{port} (connect)" in text
    assert f"127.0.0.1:{blackhole[1]} (api_versions)" in text
    assert "refused" in text


def test_idle_connections_are_closed_without_being_failures(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool(connections_max_idle_ms=5000)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        clock.advance(4000)
        produce(pool, -1, "t", now_ms=clock.now_ms())
        receive(pool, 1)
        clock.advance(4999)
        pool.poll(0)
        assert pool.connection_count == 1
        clock.advance(1)
        pool.poll(0)
        assert pool.connection_count == 0
        assert pool.take_failures() == []
        assert pool.ready_delay_ms(-1, clock.now_ms()) == 0
        until_ready(pool, clock)
        pool.close()


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_idle_connection_that_the_broker_closes_is_told_from_a_busy_one(
    make_pool: MakePool, clock: ManualClock, is_busy: bool
) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "a")
        receive(pool, 1)
    if is_busy:
        produce(pool, -1, "b")  # written before the pool sees the end of the stream
    failures: list[ConnectionFailure] = []

    def count() -> int:
        failures.extend(pool.take_failures())
        return len(failures)

    turn(pool, lambda: count() == 1)
    assert [(failure.was_idle, failure.attempt) for failure in failures] == [(not is_busy, 1)]
    clock.advance(1000)
    pool.is_ready(-1, clock.now_ms())
    turn(pool, lambda: count() == 2)
    assert failures[1].attempt == (2 if is_busy else 1), "the first of the outage"
    pool.close()


def test_a_busy_connection_is_never_idle(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server:
        pool = make_pool(connections_max_idle_ms=1000)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "t", timeout_ms=10_000)
        clock.advance(9000)
        assert pool.poll(0) == []
        assert pool.connection_count == 1
        pool.close()


# -- throttling, least loaded, cluster changes -------------------------------------------------------------------------


def test_a_throttled_node_gets_nothing_until_the_time_is_over(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(echoing()) as one, BrokerThread(echoing()) as two:
        pool = make_pool()
        pool.set_bootstrap([one.address, two.address])
        until_ready(pool, clock, -1)
        until_ready(pool, clock, -2)
        pool.throttle(-1, 300, clock.now_ms())
        assert not pool.is_ready(-1, clock.now_ms())
        assert pool.is_ready(-2, clock.now_ms())
        assert pool.ready_delay_ms(-1, clock.now_ms()) == 300
        clock.advance(299)
        assert not pool.is_ready(-1, clock.now_ms())
        clock.advance(1)
        assert pool.is_ready(-1, clock.now_ms())
        pool.close()


@pytest.mark.parametrize(
    ("throttles", "ends_ms"),
    [
        ([(0, 300)], 300),
        ([(0, 300), (0, 100)], 300),
        ([(0, 100), (0, 300)], 300),
        ([(0, 300), (250, 100)], 350),
        ([(0, 300), (100, 100), (150, 100)], 300),
        ([(0, 300), (300, 200), (400, 0)], 500),
        ([(0, 300), (400, 200)], 600),
    ],
)
def test_the_throttle_that_lasts_longest_counts(
    make_pool: MakePool, clock: ManualClock, throttles: list[tuple[int, int]], ends_ms: int
) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        started_ms = clock.now_ms()
        for at_ms, throttle_ms in throttles:
            clock.advance(started_ms + at_ms - clock.now_ms())
            pool.throttle(-1, throttle_ms, clock.now_ms())
        clock.advance(started_ms + ends_ms - 1 - clock.now_ms())
        assert not pool.is_ready(-1, clock.now_ms())
        clock.advance(1)
        assert pool.is_ready(-1, clock.now_ms())


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize(
    ("throttles_ms", "timeout_ms"),
    [([], 30_000), ([1], 30_001), ([20_000], 50_000), ([10_000, 5_000], 45_000), ([40_000], 60_000)],
)
def test_requests_in_flight_have_the_time_of_each_throttle_more(
    make_pool: MakePool, clock: ManualClock, in_flight: int, throttles_ms: list[int], timeout_ms: int
) -> None:
    """Up to twice their own: whoever is throttled is answered later (KIP-219)."""
    with BrokerThread() as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        for number in range(in_flight):
            produce(pool, -1, number, now_ms=clock.now_ms(), timeout_ms=30_000)
        for throttle_ms in throttles_ms:
            pool.throttle(-1, throttle_ms, clock.now_ms())
        clock.advance(timeout_ms - 1)
        assert pool.poll(0) == []
        assert pool.in_flight_count(-1) == in_flight
        clock.advance(1)
        failed = receive(pool, in_flight)
        assert [(request.on_done, type(request.error)) for request in failed] == [
            (number, RequestTimedOutError) for number in range(in_flight)
        ]


def test_throttle_without_measure_is_obeyed_for_a_minute_and_logged_once(
    make_pool: MakePool, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        for _ in range(3):
            pool.throttle(-1, 2**31 - 1, clock.now_ms())
        assert pool.ready_delay_ms(-1, clock.now_ms()) == 60_000
        assert caplog.text.count("60000 are obeyed") == 1
        pool.close()


def test_server_that_ends_each_connection_before_any_answer_is_backed_off_from(
    make_pool: MakePool, clock: ManualClock
) -> None:
    """As a port that wants a login does with a client that offers none: the handshake alone proves nothing."""

    def cut(request: Received) -> None:
        server.reset(server.brokers[-1])

    with BrokerThread(lambda: FakeBroker(handlers={PRODUCE: cut})) as server:
        pool = make_pool(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1000)
        pool.set_bootstrap([server.address])
        attempts, delays = [], []
        for _ in range(4):
            until_ready(pool, clock)
            produce(pool, -1, "t")
            receive(pool, 1)
            attempts += [failure.attempt for failure in pool.take_failures()]
            delays.append(pool.ready_delay_ms(-1, clock.now_ms()))
            clock.advance(1000)
        assert attempts == [1, 2, 3, 4], "only the first one is a warning"
        assert delays == [50, 100, 200, 400]
        pool.close()


@pytest.mark.parametrize("outages", [(1,), (3,), (3, 1), (1, 3), (3, 2, 4)])
def test_each_outage_is_backed_off_from_as_if_it_were_the_first(
    make_pool: MakePool, clock: ManualClock, outages: tuple[int, ...]
) -> None:
    answers: list[bool] = []

    def cut_or_answer(request: Received) -> bytes | None:
        if not (is_answer := answers.pop(0)):
            server.reset(server.brokers[-1])
        return b"re" if is_answer else None

    with BrokerThread(lambda: FakeBroker(handlers={PRODUCE: cut_or_answer})) as server:
        pool = make_pool(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1000)
        pool.set_bootstrap([server.address])
        for length in outages:
            attempts, delays = [], []
            for is_answer in [False] * length + [True]:
                answers.append(is_answer)
                until_ready(pool, clock)
                produce(pool, -1, "t", now_ms=clock.now_ms())
                receive(pool, 1)
                if not is_answer:
                    attempts += [failure.attempt for failure in pool.take_failures()]
                    delays.append(pool.ready_delay_ms(-1, clock.now_ms()))
                    clock.advance(1000)
            assert attempts == list(range(1, length + 1))
            assert delays == [50, 100, 200, 400][:length]
        pool.close()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(bytes.fromhex("0023 ffffffff 0012 0000"), id="refusal with a negative count"),
        pytest.param(bytes.fromhex("0023 00000001 ffffffff"), id="refusal with half an entry"),
        pytest.param(bytes.fromhex("0000 0212 00000004 00"), id="list that is cut off"),
        pytest.param(bytes.fromhex("0000 ffffffff0f"), id="list of 2^32 entries"),
    ],
)
def test_server_with_a_damaged_list_of_versions_is_backed_off_from(
    make_pool: MakePool, clock: ManualClock, body: bytes
) -> None:
    with BrokerThread(lambda: FakeBroker(handlers={18: lambda _: body})) as server:
        pool = make_pool(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1000)
        pool.set_bootstrap([server.address])
        attempts, delays = [], []
        for _ in range(4):
            attempts.append(until_failed(pool, clock).attempt)
            delays.append(pool.ready_delay_ms(-1, clock.now_ms()))
            clock.advance(1000)
        assert attempts == [1, 2, 3, 4]
        assert delays == [50, 100, 200, 400]
        assert pool.metrics()[-1].connections_created == 4
        pool.close()


@pytest.mark.parametrize(("highest", "is_throttled"), [(0, False), (1, True)])
def test_declared_responses_throttle_from_the_version_that_says_so(
    make_pool: MakePool, clock: ManualClock, highest: int, is_throttled: bool
) -> None:
    ranges = {18: (0, 4), 22: (0, highest)}
    answer = struct.pack(">ihqh", 250, 0, 1, 0)
    with BrokerThread(lambda: FakeBroker(ranges=ranges, handlers={22: lambda _: answer})) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        pool.send(-1, request, on_done=outcome_token("t"), now_ms=clock.now_ms(), timeout_ms=1000)
        receive(pool, 1)
        assert pool.is_ready(-1, clock.now_ms()) is not is_throttled
        pool.close()


def test_least_loaded_prefers_idle_then_fewest_then_connecting_then_longest_untried(
    make_pool: MakePool, clock: ManualClock, blackhole: tuple[str, int]
) -> None:
    with BrokerThread() as one, BrokerThread() as two:
        pool = make_pool(max_in_flight_requests_per_connection=3)
        assert pool.least_loaded_node(clock.now_ms()) is None
        pool.set_bootstrap([one.address, two.address, blackhole])
        pool.is_ready(-1, clock.now_ms())
        assert pool.least_loaded_node(clock.now_ms()) == -1  # the one being connected
        until_ready(pool, clock, -1)
        assert pool.least_loaded_node(clock.now_ms()) == -1
        until_ready(pool, clock, -2)
        produce(pool, -1, "a")
        assert pool.least_loaded_node(clock.now_ms()) == -2
        produce(pool, -2, "b")
        produce(pool, -2, "c")
        assert pool.least_loaded_node(clock.now_ms()) == -1
        produce(pool, -1, "d")
        produce(pool, -1, "e")
        assert pool.least_loaded_node(clock.now_ms()) == -2
        produce(pool, -2, "f")
        assert pool.least_loaded_node(clock.now_ms()) == -3  # full ones are no use; this one may be connected
        pool.close()


def test_bootstrap_servers_are_tried_beside_one_that_does_not_answer(
    make_pool: MakePool, clock: ManualClock, blackhole: tuple[str, int]
) -> None:
    with BrokerThread() as server:
        pool = make_pool()
        pool.set_bootstrap([blackhole, blackhole, server.address])
        tried = []
        for wait_ms in (0, HEAD_START_MS - 1, 1, HEAD_START_MS - 1, 1):
            clock.advance(wait_ms)
            node_id = pool.least_loaded_node(clock.now_ms())
            assert node_id is not None
            pool.is_ready(node_id, clock.now_ms())
            tried.append((node_id, pool.connection_count))
        assert [count for _, count in tried] == [1, 1, 2, 2, 3]
        until_ready(pool, clock, -3)
        assert pool.least_loaded_node(clock.now_ms()) == -3
        assert all(f"{blackhole[1]} (api_versions): no answer yet" in line for line in silent_lines(pool))
        pool.close()


def silent_lines(pool: NodePool) -> list[str]:
    lines = str(pool.members.bootstrap_error()).split("; ")
    assert len(lines) == 2
    return lines


def test_a_node_that_is_full_is_connected_all_the_same(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as broker:
        pool = make_pool(max_in_flight_requests_per_connection=1)
        assert not pool.is_any_connected
        pool.set_bootstrap([broker.address])
        pool.is_ready(-1, clock.now_ms())
        assert not pool.is_any_connected
        until_ready(pool, clock, -1)
        produce(pool, -1, "a")
        assert pool.least_loaded_node(clock.now_ms()) is None
        assert pool.is_any_connected
        pool.close()


def test_least_loaded_knows_nobody_while_all_back_off(make_pool: MakePool, clock: ManualClock) -> None:
    pool = make_pool()
    pool.set_bootstrap([("127.0.0.1", dead_port()), ("127.0.0.1", dead_port())])
    until_failed(pool, clock, -1)
    clock.advance(10)
    assert pool.least_loaded_node(clock.now_ms()) == -2
    until_failed(pool, clock, -2)
    assert pool.least_loaded_node(clock.now_ms()) is None
    clock.advance(60)
    assert pool.least_loaded_node(clock.now_ms()) == -1  # tried before -2


def test_metadata_replaces_the_bootstrap_nodes(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "asked of bootstrap")
        pool.update_nodes({})
        assert pool.node_ids() == [-1]
        pool.update_nodes({7: Node(7, *server.address)})
        assert pool.node_ids() == [7]
        assert pool.connection_count == 1  # one answer is awaited
        assert receive(pool, 1)[0].body is not None
        assert pool.connection_count == 0
        assert pool.take_failures() == []
        until_ready(pool, clock, 7)
        produce(pool, 7, "t")
        assert receive(pool, 1)[0].node_id == 7
        assert {node_id: m.responses_received for node_id, m in pool.metrics().items()} == {-1: 1, 7: 1}
        pool.close()


def test_a_broker_that_moved_is_another_broker(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as old, BrokerThread(echoing()) as new:
        pool = make_pool()
        pool.update_nodes({1: Node(1, *old.address)})
        until_ready(pool, clock, 1)
        produce(pool, 1, "old")
        pool.update_nodes({1: Node(1, *new.address)})
        (done,) = pool.poll(0)
        assert isinstance(done.error, ConnectionLostError)
        until_ready(pool, clock, 1)
        produce(pool, 1, "new")
        assert receive(pool, 1)[0].error is None
        pool.close()


def test_two_node_ids_on_one_address_are_two_connections(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(echoing()) as server:
        pool = make_pool()
        pool.update_nodes({1: Node(1, *server.address), 2: Node(2, *server.address)})
        until_ready(pool, clock, 1)
        until_ready(pool, clock, 2)
        produce(pool, 1, "one")
        produce(pool, 2, "two")
        assert {(c.node_id, c.on_done) for c in receive(pool, 2)} == {(1, "one"), (2, "two")}
        assert len(server.brokers) == 2
        pool.close()


def test_a_node_that_comes_back_keeps_its_connection(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server, BrokerThread() as other:
        pool = make_pool()
        both = {1: Node(1, *server.address), 2: Node(2, *other.address)}
        pool.update_nodes(both)
        until_ready(pool, clock, 1)
        produce(pool, 1, "t")
        pool.update_nodes({2: both[2]})
        assert not pool.is_ready(1, clock.now_ms())
        pool.update_nodes(both)
        assert pool.is_ready(1, clock.now_ms())
        assert len(server.brokers) == 1
        pool.close()


def test_rebootstrap_closes_everything_and_starts_over(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread() as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        pool.update_nodes({1: Node(1, *server.address)})
        until_ready(pool, clock, 1)
        produce(pool, 1, "t")
        pool.rebootstrap()
        assert pool.node_ids() == [-1]
        (done,) = pool.poll(0)
        assert done.error is not None
        until_ready(pool, clock, -1)
        pool.close()


def test_a_broker_of_another_cluster_asks_for_a_rebootstrap(make_pool: MakePool, clock: ManualClock) -> None:
    refusal = struct.pack(">hBi", 129, 1, 0) + b"\0"
    with BrokerThread(lambda: FakeBroker(handlers={18: lambda _: refusal})) as server:
        pool = make_pool()
        pool.set_bootstrap([server.address])
        until_failed(pool, clock)
        assert pool.is_rebootstrap_required
        pool.rebootstrap()
        assert not pool.is_rebootstrap_required
        pool.close()


def test_the_cluster_is_checked_where_brokers_can(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(lambda: FakeBroker(ranges={18: (0, 5)}, refuse_versions_above=5)) as current:
        pool = make_pool()
        pool.update_nodes({3: Node(3, *current.address)}, "cluster")
        until_ready(pool, clock, 3)
        assert current.brokers[0].seen == [(18, 5)]
        assert b"cluster" + struct.pack(">i", 3) in current.brokers[0].requests[0].body
        pool.close()
    with BrokerThread(lambda: FakeBroker(refuse_versions_above=4)) as older:
        pool = make_pool()
        pool.update_nodes({3: Node(3, *older.address)}, "cluster")
        until_ready(pool, clock, 3)
        assert older.brokers[0].seen == [(18, 5), (18, 4)]
        pool.disconnect(3, ConnectionLostError("test"))
        clock.advance(60)
        until_ready(pool, clock, 3)
        assert older.brokers[1].seen == [(18, 4)]  # it is known not to check
        pool.close()


# -- security ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


def test_produce_over_tls(make_pool: MakePool, clock: ManualClock, authority: Authority) -> None:
    received: list[bytes] = []

    def answer(request: Received) -> bytes:
        received.append(request.body)
        return b"ok"

    tls = authority.issue("pool", ["127.0.0.1"]).server_context()
    chain = [os.urandom(16_384) for _ in range(50)]
    with BrokerThread(lambda: FakeBroker(handlers={PRODUCE: answer}), tls=tls) as server:
        pool = make_pool(tls=client_context(unchecked_config(ssl_cafile=authority.cafile)), send_buffer_bytes=4096)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        produce(pool, -1, "t", chain)
        assert receive(pool, 1)[0].error is None
        assert received == [b"".join(chain)]
        pool.close()


@pytest.mark.parametrize(
    ("names", "flaws"),
    [
        (["other.test"], {}),
        (["127.0.0.1"], {"valid_days": -1}),
        (["127.0.0.1"], {"is_self_signed": True}),
    ],
)
def test_a_broker_that_cannot_prove_its_identity_is_refused(
    make_pool: MakePool, clock: ManualClock, authority: Authority, names: list[str], flaws: dict[str, Any]
) -> None:
    tls = authority.issue("flawed", names, **flaws).server_context()
    with BrokerThread(tls=tls) as server:
        pool = make_pool(tls=client_context(unchecked_config(ssl_cafile=authority.cafile)))
        pool.set_bootstrap([server.address])
        failure = until_failed(pool, clock)
        assert failure.stage is ConnectionStage.TLS
        assert isinstance(failure.error, AuthenticationError)
        assert server.brokers == []
        pool.close()


def test_tls_against_a_plain_broker_fails_without_sending_a_request(
    make_pool: MakePool, clock: ManualClock, authority: Authority
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool = make_pool(tls=client_context(unchecked_config(ssl_cafile=authority.cafile)))
        pool.set_bootstrap([listener.getsockname()])
        pool.is_ready(-1, clock.now_ms())
        peer, _ = listener.accept()
        turn(pool, lambda: pool.poll(0) or peer.recv(1, socket.MSG_PEEK))
        assert peer.recv(1) == b"\x16"  # a TLS handshake record, nothing else
        peer.sendall(b"\0\0\0\x04\0\0\0\0")
        failure = until_failed(pool, clock)
        assert failure.stage is ConnectionStage.TLS
        peer.close()


def test_plain_login_and_the_first_request(make_pool: MakePool, clock: ManualClock) -> None:
    tokens: list[bytes] = []

    def check(token: bytes) -> tuple[int, bytes]:
        tokens.append(token)
        return 0, b""

    with BrokerThread(echoing(sasl=check)) as server:
        pool = make_pool(mechanism=lambda host: PlainMechanism("alice", "secret"))
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        assert tokens == [b"\0alice\0secret"]
        produce(pool, -1, "t")
        assert receive(pool, 1)[0].error is None
        assert pool.metrics()[-1].authentications_succeeded == 1
        pool.close()


def test_refused_credentials_are_not_tried_again_at_once(make_pool: MakePool, clock: ManualClock) -> None:
    with BrokerThread(lambda: FakeBroker(sasl=lambda token: (58, b""))) as server:
        pool = make_pool(mechanism=lambda host: PlainMechanism("alice", "canary"))
        pool.set_bootstrap([server.address])
        failure = until_failed(pool, clock)
        assert isinstance(failure.error, AuthenticationError)
        assert failure.stage is ConnectionStage.SASL
        assert "canary" not in str(failure.error) + repr(failure)
        assert (pool.ready_delay_ms(-1, clock.now_ms()) or 0) >= 1000
        assert pool.metrics()[-1].authentications_failed == 1
        pool.close()


def test_a_server_that_forges_its_scram_proof_gets_no_request(make_pool: MakePool, clock: ManualClock) -> None:
    def forge(token: bytes) -> tuple[int, bytes]:
        if token.startswith(b"n,,"):
            nonce = token.split(b"r=")[1]
            return 0, b"r=" + nonce + b"srv,s=c2FsdA==,i=4096"
        return 0, b"v=" + b"A" * 43 + b"="

    broker: dict[str, Any] = {"sasl": forge, "mechanisms": ("SCRAM-SHA-256",)}
    with BrokerThread(lambda: FakeBroker(**broker)) as server:
        pool = make_pool(mechanism=lambda host: ScramMechanism("SCRAM-SHA-256", "user", "pencil"))
        pool.set_bootstrap([server.address])
        failure = until_failed(pool, clock)
        assert isinstance(failure.error, AuthenticationError)
        assert [key for key, _ in server.brokers[0].seen] == [18, 17, 36, 36]
        pool.close()


def test_a_kerberos_login_and_its_renewal(make_pool: MakePool, clock: ManualClock) -> None:
    library, kerberos = FakeKerberos(), KerberosBroker()
    tickets = Tickets(unchecked_config(), library)
    broker: dict[str, Any] = {"sasl": kerberos.answer, "mechanisms": ("GSSAPI",), "session_lifetime_ms": 60_000}
    with BrokerThread(lambda: FakeBroker(**broker)) as server:
        pool = make_pool(mechanism=lambda host: KerberosMechanism(host, tickets))
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        clock.advance(57_000)
        turn(pool, lambda: pool.metrics()[-1].reauthentications_succeeded)
        assert library.services == ["kafka@127.0.0.1"] * 2
        assert [key for key, _ in server.brokers[0].seen].count(36) == 6
        pool.close()


def test_a_login_without_a_ticket_says_how_to_get_one(make_pool: MakePool, clock: ManualClock) -> None:
    def fail() -> None:
        raise MissingCredentialsError(0, "No Kerberos credentials available")

    tickets = Tickets(unchecked_config(), FakeKerberos(fetch=fail))
    with BrokerThread(lambda: FakeBroker(mechanisms=("GSSAPI",))) as server:
        pool = make_pool(mechanism=lambda host: KerberosMechanism(host, tickets))
        pool.set_bootstrap([server.address])
        failure = until_failed(pool, clock)
        assert isinstance(failure.error, AuthenticationError)
        assert "run kinit" in str(failure.error)
        assert (pool.ready_delay_ms(-1, clock.now_ms()) or 0) >= 1000
        pool.close()


def test_the_session_is_renewed_with_a_fresh_mechanism(make_pool: MakePool, clock: ManualClock) -> None:
    made: list[PlainMechanism] = []

    def mechanism(host: str) -> PlainMechanism:
        made.append(PlainMechanism("alice", f"secret{len(made)}"))
        return made[-1]

    tokens: list[bytes] = []

    def check(token: bytes) -> tuple[int, bytes]:
        tokens.append(token)
        return 0, b""

    with BrokerThread(echoing(sasl=check, session_lifetime_ms=60_000)) as server:
        pool = make_pool(mechanism=mechanism)
        pool.set_bootstrap([server.address])
        until_ready(pool, clock)
        clock.advance(57_000)
        turn(pool, lambda: pool.metrics()[-1].reauthentications_succeeded)
        assert pool.is_ready(-1, clock.now_ms())
        assert tokens == [b"\0alice\0secret0", b"\0alice\0secret1"]
        assert len(server.brokers) == 1
        pool.close()


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_wakeup_ends_a_long_poll(make_pool: MakePool) -> None:
    pool = make_pool()
    thread = threading.Thread(target=pool.wakeup)
    thread.start()
    assert pool.poll(60_000) == []
    thread.join()


def test_deadlines_end_a_long_poll() -> None:
    pool = NodePool(connection_settings(socket_connection_setup_timeout_ms=30), SystemClock())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pool.set_bootstrap([listener.getsockname()])
        pool.is_ready(-1, SystemClock().now_ms())
        for _ in range(10):
            pool.poll(60_000)
            if pool.take_failures():
                break
        else:
            raise AssertionError("the setup timeout did not fire")
    pool.close()


@pytest.mark.parametrize(
    ("allowed", "host", "reason"),
    [
        ("kafka1", "127.0.0.1", "allowed_brokers does not have the address 127.0.0.1"),
        (
            "10.0.0.0/8",
            "localhost",
            "allowed_brokers has neither the name localhost nor one of its addresses: 127.0.0.1",
        ),
        (
            "kafka1",
            "localhost",
            "allowed_brokers does not have the name localhost, and no address or network, so it was not looked up",
        ),
        ("127.0.0.0/8", "localhost", ""),
        ("localhost", "localhost", ""),
        ("::1,127.0.0.1", "127.0.0.1", ""),
    ],
)
def test_brokers_of_the_metadata_are_followed_to_allowed_hosts_only(
    make_pool: MakePool,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    allowed: str,
    host: str,
    reason: str,
) -> None:
    resolved = []
    resolve = node_module.resolve

    def watched(name: str, port: int, family: int) -> list[Address]:
        resolved.append(name)
        return [found for found in resolve(name, port, family=family) if found.family == socket.AF_INET]

    monkeypatch.setattr(node_module, "resolve", watched)
    with BrokerThread() as first, BrokerThread() as second:
        pool = make_pool(allowed_brokers=Hosts().parse(allowed))
        pool.set_bootstrap([first.address])
        until_ready(pool, clock)
        pool.update_nodes({7: Node(7, host, second.port)})
        if reason:
            assert reason in str(until_failed(pool, clock, 7).error)
            assert not second.brokers
        else:
            until_ready(pool, clock, 7)
        assert bool(resolved) is (host == "localhost" and "not looked up" not in reason)
