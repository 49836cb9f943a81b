from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import pytest

from kafkaprod.net import transport as transport_module
from kafkaprod.net.poller import READABLE, WRITABLE
from kafkaprod.net.tls_transport import TlsTransport
from kafkaprod.net.transport import (
    FAMILIES,
    OS_DEFAULT,
    Address,
    TcpTransport,
    Transport,
    connecting_socket,
    numeric_addresses,
    resolve,
)
from kafkaprod.security.tls import client_context
from tests.support.config import unchecked_config
from tests.support.net.certificates import Authority

CHAIN = [os.urandom(size) for size in (4, 1, 70, 16_384, 16_384, 3, 100_000, 1, 1, 65_536, 5)] * 12


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    yield listener
    listener.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


def connect_to(listener: socket.socket, *, send_buffer_bytes: int = OS_DEFAULT) -> socket.socket:
    address = Address(socket.AF_INET, listener.getsockname())
    return connecting_socket(address, send_buffer_bytes=send_buffer_bytes, receive_buffer_bytes=OS_DEFAULT)


def wait(transport: Transport, *, has_output: bool = False) -> None:
    interest = transport.interest(has_output=has_output)
    readers = [transport] if interest & READABLE else []
    writers = [transport] if interest & WRITABLE else []
    ready = select.select(readers, writers, [], 10)
    assert ready[0] or ready[1], "nothing became ready"


def open_both(*transports: Transport) -> None:
    for _ in range(100):
        is_open = [transport.try_open() for transport in transports]  # each one, every time
        if all(is_open):
            return
        select.select(transports, [], [], 0.01)
    raise AssertionError("the transports do not open")


def tcp_pair(listener: socket.socket, **options: int) -> tuple[Transport, Transport]:
    client = TcpTransport(connect_to(listener, **options))
    accepted, _ = listener.accept()
    accepted.setblocking(False)
    server = TcpTransport(accepted)
    open_both(client, server)
    return client, server


def tls_pair(listener: socket.socket, authority: Authority, **options: int) -> tuple[Transport, Transport]:
    context = client_context(unchecked_config(ssl_cafile=authority.cafile))
    client = TlsTransport(connect_to(listener, **options), context, server_hostname="broker.test.")
    accepted, _ = listener.accept()
    accepted.setblocking(False)
    server_context = authority.issue("transport", ["broker.test"]).server_context()
    server = TlsTransport(accepted, server_context, server_hostname=None)
    open_both(client, server)
    return client, server


Pair = Callable[..., tuple[Transport, Transport]]


@pytest.fixture(params=["tcp", "tls"])
def pair(request: pytest.FixtureRequest, listener: socket.socket, authority: Authority) -> Iterator[Pair]:
    opened: list[Transport] = []

    def make(**options: int) -> tuple[Transport, Transport]:
        both = tcp_pair(listener, **options) if request.param == "tcp" else tls_pair(listener, authority, **options)
        opened.extend(both)
        return both

    yield make
    for transport in opened:
        transport.close()


def receive_available(transport: Transport) -> bytes:
    received = bytearray()
    target = memoryview(bytearray(65_536))
    while size := transport.receive_into(target):
        received += target[:size]
    return bytes(received)


def receive_exactly(transport: Transport, size: int) -> bytes:
    received = b""
    while len(received) < size:
        wait(transport)  # TLS 1.3 wakes with session tickets, which hold no data
        received += receive_available(transport)
    return received


def advance(buffers: list[memoryview], size: int) -> list[memoryview]:
    while size:
        taken = min(size, len(buffers[0]))
        buffers = ([buffers[0][taken:]] if taken < len(buffers[0]) else []) + buffers[1:]
        size -= taken
    return buffers


def test_bytes_flow_both_ways(pair: Pair) -> None:
    client, server = pair()
    assert client.send([b"he", b"llo"]) == 5
    assert receive_exactly(server, 5) == b"hello"
    assert server.send([b"world"]) == 5
    assert receive_exactly(client, 5) == b"world"
    assert client.receive_into(memoryview(bytearray(10))) is None


def test_a_long_chain_through_a_tiny_send_buffer_arrives_byte_exact(pair: Pair) -> None:
    client, server = pair(send_buffer_bytes=2048)
    expected = b"".join(CHAIN)
    pending = [memoryview(buffer) for buffer in CHAIN]
    received = bytearray()
    refusals = partials = 0
    while len(received) < len(expected):
        if pending:
            offered = sum(map(len, pending))
            sent = client.send(pending)
            refusals += sent == 0
            partials += 0 < sent < offered
            pending = advance(pending, sent)
        received += receive_available(server)
    assert bytes(received) == expected
    assert partials > 0
    assert client.send([b"x"]) == 1


def test_reported_bytes_never_run_behind_what_the_peer_could_read(pair: Pair) -> None:
    """A byte that was not reported as sent must not have arrived: its request may be called not persisted."""
    client, server = pair(send_buffer_bytes=2048)
    pending = [memoryview(buffer) for buffer in CHAIN]
    reported = arrived = 0
    while pending:
        sent = client.send(pending)
        reported += sent
        pending = advance(pending, sent)
        arrived += len(receive_available(server))
        assert arrived <= reported


def test_more_buffers_than_one_system_call_takes_are_sent_in_parts(pair: Pair) -> None:
    client, server = pair()
    buffers = [memoryview(bytes([index % 256])) for index in range(3000)]
    expected = b"".join(buffers)
    received = bytearray()
    while len(received) < 3000:
        buffers = advance(buffers, client.send(buffers)) if buffers else []
        received += receive_available(server)
    assert bytes(received) == expected


def test_the_end_of_the_stream_reads_as_zero(pair: Pair) -> None:
    client, server = pair()
    server.send([b"bye"])
    server.close()
    wait(client)
    target = memoryview(bytearray(100))
    sizes: list[int | None] = []
    while not sizes or sizes[-1] != 0:
        sizes.append(client.receive_into(target))
        wait(client)
    assert [size for size in sizes if size is not None] == [3, 0]


def test_a_reset_raises_and_close_may_be_repeated(listener: socket.socket) -> None:
    client, server = tcp_pair(listener)
    server._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # type: ignore[attr-defined]
    server.close()
    wait(client)
    with pytest.raises(ConnectionResetError):
        client.receive_into(memoryview(bytearray(10)))
    client.close()
    client.close()
    assert client.fileno() == -1


def connect_fully(address: Address) -> None:
    client = TcpTransport(connecting_socket(address, send_buffer_bytes=OS_DEFAULT, receive_buffer_bytes=OS_DEFAULT))
    try:
        wait(client)
        client.try_open()
    finally:
        client.close()


def test_a_refused_connect_raises(listener: socket.socket) -> None:
    address = Address(socket.AF_INET, listener.getsockname())
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        connect_fully(address)


def test_interest_follows_the_state(pair: Pair) -> None:
    client, _ = pair()
    assert client.interest(has_output=False) == READABLE
    assert client.interest(has_output=True) == READABLE | WRITABLE


def test_a_connecting_transport_waits_for_writability(listener: socket.socket) -> None:
    transport = TcpTransport(connect_to(listener))
    assert transport.interest(has_output=False) == WRITABLE
    wait(transport)
    assert transport.try_open()
    transport.close()


@pytest.mark.parametrize("name", ["other.test", "127.0.0.1"])
def test_tls_refuses_a_certificate_for_another_host(listener: socket.socket, authority: Authority, name: str) -> None:
    context = client_context(unchecked_config(ssl_cafile=authority.cafile))
    client = TlsTransport(connect_to(listener), context, server_hostname=name)
    accepted, _ = listener.accept()
    accepted.setblocking(False)
    server = TlsTransport(accepted, authority.issue("t", ["broker.test"]).server_context(), server_hostname=None)
    with pytest.raises(ssl.SSLCertVerificationError):
        open_both(client, server)
    client.close()
    server.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\0", b""])
def test_tls_never_falls_back_to_plain_text(listener: socket.socket, authority: Authority, answer: bytes) -> None:
    context = client_context(unchecked_config(ssl_cafile=authority.cafile))
    client = TlsTransport(connect_to(listener), context, server_hostname="broker.test")
    accepted, _ = listener.accept()
    accepted.sendall(answer)
    accepted.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError):
        open_both(client)
    with pytest.raises(ssl.SSLError, match="not complete"):
        client.send([b"secret"])
    with pytest.raises(ssl.SSLError, match="not complete"):
        client.receive_into(memoryview(bytearray(10)))
    client.close()
    accepted.settimeout(10)
    assert b"secret" not in accepted.recv(65_536)
    accepted.close()


def server_flight(hello: bytes, context: ssl.SSLContext) -> bytes:
    """What a server answers to a ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(hello)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return outgoing.read()


def test_a_handshake_cut_at_any_byte_is_an_error_and_never_open(listener: socket.socket, authority: Authority) -> None:
    context = client_context(unchecked_config(ssl_cafile=authority.cafile))
    server_context = authority.issue("cut", ["broker.test"]).server_context()
    cut_at, flight_bytes = 0, 1
    while cut_at < flight_bytes:
        client = TlsTransport(connect_to(listener), context, server_hostname="broker.test")
        accepted, _ = listener.accept()
        accepted.settimeout(10)
        wait(client)
        assert not client.try_open()
        flight = server_flight(accepted.recv(65_536), server_context)
        flight_bytes = len(flight) - 40  # the last record ends the server's part: behind it the client is done
        accepted.sendall(flight[:cut_at])
        accepted.shutdown(socket.SHUT_WR)
        with pytest.raises(OSError):
            open_both(client)
        client.close()
        accepted.close()
        cut_at += 29
    assert cut_at > 500


def test_numeric_hosts_need_no_resolver() -> None:
    assert numeric_addresses("127.0.0.1", 9092) == [Address(socket.AF_INET, ("127.0.0.1", 9092))]
    addresses = numeric_addresses("::1", 9092)
    assert addresses is not None
    assert addresses[0].family == socket.AF_INET6
    assert numeric_addresses("localhost", 9092) is None
    assert numeric_addresses("a" * 300, 9092) is None


def test_resolve_returns_each_address_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 1))
    other = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0))
    monkeypatch.setattr(transport_module.socket, "getaddrinfo", lambda *_, **__: [other, answer, answer])
    assert resolve("name", 1) == [Address(socket.AF_INET6, ("::1", 1, 0, 0)), Address(socket.AF_INET, ("10.0.0.1", 1))]


def test_socket_options_are_set(listener: socket.socket) -> None:
    sock = connecting_socket(
        Address(socket.AF_INET, listener.getsockname()), send_buffer_bytes=20_000, receive_buffer_bytes=10_000
    )
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 40_000  # Linux reports the double
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 20_000
    sock.close()


def test_a_family_keeps_addresses_of_one_kind() -> None:
    assert {address.family for address in resolve("localhost", 1, family=FAMILIES["v4"])} == {socket.AF_INET}
