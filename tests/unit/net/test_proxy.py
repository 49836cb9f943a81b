"""A proxy that sends a byte now and then: the whole exchange ends in time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import python_socks  # noqa: F401

from kafkaprod.config.secret import Secret
from kafkaprod.net.proxy import Proxy

TIMEOUT_MS = 200
PAUSE_S = 0.05  # a whole answer takes 13 s
ANSWERS = {  # an HTTP proxy's is read at once, or refused
    "socks5": b"\x05\x00" + b"\x05\x00\x00\x03\xff" + b"x" * 257,
    "socks4": b"\x00",  # and nothing more
}


@pytest.fixture
def is_over() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()


def serve(listener: socket.socket, answer: bytes, is_over: threading.Event) -> None:
    """Send the answer byte by byte; then hold the connection."""
    client, _ = listener.accept()
    with client, contextlib.suppress(OSError):
        for byte in answer:
            client.sendall(bytes((byte,)))
            if is_over.wait(PAUSE_S):
                return
        is_over.wait()


@pytest.mark.parametrize("scheme", ANSWERS)
def test_a_proxy_that_drips_is_given_up_in_time(scheme: str, is_over: threading.Event) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener, ANSWERS[scheme], is_over), daemon=True).start()
        proxy = Proxy(Secret(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"))
        begun_s = time.monotonic()
        with pytest.raises(OSError, match=f"no complete answer within {TIMEOUT_MS} ms"):
            proxy.connect("127.0.0.1", 9092, TIMEOUT_MS)
        assert time.monotonic() - begun_s < 5
