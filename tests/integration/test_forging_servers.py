"""Servers that do not know the password, or send a SCRAM login's messages falsified: nobody is logged in by them."""

from __future__ import annotations

import base64
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from kafkaprod import Producer
from kafkaprod.errors import AuthenticationError
from tests.support.net.fake_broker import API_VERSIONS, FakeBroker
from tests.support.net.scram_server import ScramServer

PASSWORD = "pencil"
Change = Callable[[bytes], bytes]


class ForgingServer:
    """Speaks Kafka and SCRAM on a socket; `first` and `final` change what it says. Knows `password`."""

    def __init__(self, *, first: Change = bytes, final: Change = bytes, password: str = PASSWORD) -> None:
        self.logins = 0
        self.connections = 0
        self._changes = (first, final)
        self._password = password
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        self.connections += 1
        scram, turn = ScramServer(self._password), itertools.count()

        def answer(token: bytes) -> tuple[int, bytes]:
            honest = (self._first, self._final)[next(turn) % 2](scram, token)
            return 0, honest

        broker = FakeBroker(mechanisms=("SCRAM-SHA-256",), sasl=answer)
        while data := _received(connection):
            reply = broker.receive(data)
            # After the login the client asks for all versions: it believes that it is in.
            self.logins += sum(each.api_key == API_VERSIONS and each.version > 0 for each in broker.requests)
            broker.requests.clear()
            try:
                connection.sendall(reply)
            except OSError:
                return

    def _first(self, scram: ScramServer, token: bytes) -> bytes:
        return self._changes[0](scram.server_first(token))

    def _final(self, scram: ScramServer, token: bytes) -> bytes:
        return self._changes[1](scram.server_final(token))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


@contextmanager
def producer_of(server: ForgingServer) -> Iterator[Producer]:
    producer = Producer(
        bootstrap_servers=server.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="user",
        sasl_plain_password=PASSWORD,
        max_block_ms=2000,
    )
    try:
        yield producer
    finally:
        producer.close(5)


def iterations(count: str) -> Change:
    return lambda message: message.split(b",i=")[0] + b",i=" + count.encode()


WRONG_FIRST: dict[str, Change] = {
    "nonce not ours": lambda message: message.replace(b"r=", b"r=x"),
    "nonce not longer than ours": lambda message: message.replace(b"server", b""),
    "no nonce": lambda message: message.split(b",", 1)[1],
    "no salt": lambda message: message.split(b",s=")[0] + b",i=4096",
    "empty salt": lambda message: message.split(b",s=")[0] + b",s=,i=4096",
    "other salt": lambda message: message.split(b",s=")[0] + b",s=AAAA,i=4096",
    "extension": lambda message: b"m=ext," + message,
    "empty": lambda message: b"",
    "not text": lambda message: b"\xff\xfe" + message,
    "4097 bytes": lambda message: message + b"," + b"x" * (4096 - len(message)),
    "400 KiB": lambda message: message + b"x" * (400 << 10),
    "12 MiB": lambda message: message + b"x" * (12 << 20),
    **{f"i={i}": iterations(i) for i in ("", "0", "1", "4095", "-1", "4096.0", "1000001", "2147483647", "9" * 4000)},
}
WRONG_FINAL: dict[str, Change] = {
    "signature changed": lambda message: message[:2] + bytes([message[2] ^ 1]) + message[3:],
    "signature cut": lambda message: b"v=" + base64.b64encode(base64.b64decode(message[2:])[:31]),
    "signature empty": lambda message: b"v=",
    "no signature": lambda message: b"",
    "another field": lambda message: b"x=" + message[2:],
    "error": lambda message: b"e=other-error",
    "too long": lambda message: message + b"," + b"x" * 4096,
}


def check_refused(server: ForgingServer) -> None:
    with closing(server), producer_of(server) as producer:
        with pytest.raises((AuthenticationError, ConnectionError)) as caught:
            producer.send("t", b"secret")
        assert PASSWORD not in str(caught.value)
    assert server.connections > 0
    assert server.logins == 0


@pytest.mark.parametrize("change", WRONG_FIRST.values(), ids=WRONG_FIRST)
def test_forged_first_message_logs_nobody_in(change: Change) -> None:
    check_refused(ForgingServer(first=change))


@pytest.mark.parametrize("change", WRONG_FINAL.values(), ids=WRONG_FINAL)
def test_forged_final_message_logs_nobody_in(change: Change) -> None:
    check_refused(ForgingServer(final=change))


def test_server_that_knows_another_password_logs_nobody_in() -> None:
    check_refused(ForgingServer(password="guess"))


def test_honest_server_logs_in() -> None:
    """Else the tests above would say nothing. It answers no metadata, so that the send ends by its timeout."""
    server = ForgingServer()
    with closing(server), producer_of(server) as producer, pytest.raises((TimeoutError, ConnectionError)):
        producer.send("t", b"v")
    assert server.logins == 1
