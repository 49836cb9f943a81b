"""One HTTP exchange has a deadline as a whole, whatever the server sends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafkaprod.net.http_exchange import HttpAnswer, exchange

READ_MS = 300
BOUND_S = 10
DRIPS_S = 0.02

Reply = Callable[[socket.socket, threading.Event], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Reply], int]]:
    is_over = threading.Event()
    threads = []
    listener = socket.create_server(("127.0.0.1", 0))

    def start(reply: Reply) -> int:
        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                reply(connection, is_over)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    is_over.set()
    for thread in threads:
        thread.join(BOUND_S)
    listener.close()


def get(port: int) -> HttpAnswer:
    url = f"http://127.0.0.1:{port}/token"
    return exchange("GET", url, {}, None, connect_timeout_ms=5000, read_timeout_ms=READ_MS, tls=None)


def drip(start: bytes) -> Reply:
    def reply(connection: socket.socket, is_over: threading.Event) -> None:
        connection.sendall(start)
        try:
            while not is_over.wait(DRIPS_S):
                connection.sendall(b"x")
        except OSError:
            pass  # the client has gone

    return reply


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_server_that_drips_is_left_at_the_deadline(serve: Callable[[Reply], int], start: bytes) -> None:
    port = serve(drip(start))
    begun_s = time.monotonic()
    with pytest.raises(TimeoutError, match=f"no complete answer within {READ_MS} ms"):
        get(port)
    assert time.monotonic() - begun_s < BOUND_S


@pytest.mark.parametrize(
    "head", [b"Content-Length: 4\r\n", b"Connection: close\r\n", b"Content-Length: 4\r\nConnection: close\r\n"]
)
def test_answer_is_read_whether_or_not_the_connection_ends(serve: Callable[[Reply], int], head: bytes) -> None:
    port = serve(lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\nbody"))
    assert get(port).body == b"body"
