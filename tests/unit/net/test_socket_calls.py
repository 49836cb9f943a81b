"""The system calls of the sender's loop, on socket pairs."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kafkaprod.net.poller import READABLE, Poller
from kafkaprod.net.socket_calls import READY_SET, receive_into, send
from tests.support.core.core_engine import Engine

Pair = tuple[socket.socket, socket.socket]
MOST_BUFFERS = 1024
in_compiled_code = pytest.mark.skipif(
    not READY_SET or "KAFKAPROD_SELECTOR" in os.environ, reason="the selector waits in Python's own code"
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


def _switch_interval(seconds: float) -> float:
    """Set for how long a thread keeps the GIL at least; return what it was."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    return before


def read_all(sock: socket.socket) -> bytes:
    received = bytearray()
    target = bytearray(1 << 16)
    while size := receive_into(sock.fileno(), target):
        received += target[:size]
    return bytes(received)


def test_buffers_of_all_kinds_are_written_in_order(pair: Pair) -> None:
    parts: list[bytes | bytearray | memoryview] = [
        b"a",
        bytearray(b"bc"),
        memoryview(b"xdefx")[1:4],
        b"",
        b"g" * 20_000,
    ]
    assert send(pair[0].fileno(), parts) == 20_006
    assert read_all(pair[1]) == b"abcdef" + b"g" * 20_000


def test_what_the_kernel_does_not_take_is_told_and_can_be_sent_on(pair: Pair) -> None:
    data = bytes(range(256)) * 40_000
    taken = send(pair[0].fileno(), [data[:3], data[3:]])
    assert 0 < taken < len(data)
    assert send(pair[0].fileno(), [data[taken:]]) == 0
    received = read_all(pair[1])
    while taken < len(data):
        taken += send(pair[0].fileno(), [memoryview(data)[taken:]])
        received += read_all(pair[1])
    assert received == data


def test_more_buffers_than_one_call_takes_are_left_for_the_next(pair: Pair) -> None:
    assert send(pair[0].fileno(), [b"x"] * (MOST_BUFFERS + 7)) == MOST_BUFFERS


def test_nothing_to_send_is_nothing_sent(pair: Pair) -> None:
    assert send(pair[0].fileno(), []) == 0


def test_peer_that_is_gone_breaks_the_pipe(pair: Pair) -> None:
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        send(pair[0].fileno(), [b"x"])


def test_closed_descriptor_is_an_error_of_its_number() -> None:
    for call in (lambda: send(-1, [b"x"]), lambda: receive_into(-1, bytearray(1))):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_what_is_no_buffer_is_refused_with_nothing_sent(pair: Pair) -> None:
    with pytest.raises(TypeError):
        send(pair[0].fileno(), [b"x", "text"])  # type: ignore[list-item]
    assert receive_into(pair[1].fileno(), bytearray(1)) is None


def test_receiving_tells_nothing_yet_from_the_end(pair: Pair) -> None:
    target = bytearray(8)
    assert receive_into(pair[0].fileno(), target) is None
    pair[1].send(b"abc")
    assert receive_into(pair[0].fileno(), target) == 3
    assert target[:3] == b"abc"
    pair[1].close()
    assert receive_into(pair[0].fileno(), target) == 0


def test_read_only_memory_is_no_place_to_receive_into(pair: Pair) -> None:
    with pytest.raises(BufferError):
        receive_into(pair[0].fileno(), b"constant")


@in_compiled_code
def test_thread_back_from_the_kernel_gets_the_gil_at_the_next_batch(pair: Pair, poller: Poller) -> None:
    """Though the appending thread never lets go of it by itself: the interval after which it must is a minute here."""
    engine = Engine(leaders=[1], batch_size=1000, pool_bytes=1 << 20)
    is_waiting = threading.Event()
    was_ready: list[object] = []

    def wait() -> None:
        is_waiting.set()
        was_ready.append(poller.poll(30_000))

    poller.register(pair[1], READABLE, "theirs")
    thread = threading.Thread(target=wait)
    thread.start()
    is_waiting.wait(10)
    interval = _switch_interval(60.0)
    try:
        pair[0].send(b"x")
        deadline = time.monotonic() + 20
        while not was_ready and time.monotonic() < deadline:
            for _ in range(50):
                engine.append(b"x" * 300)
            for request in engine.take_all():
                for ref in request.refs():
                    ref.succeed()
                request.finish()
        assert was_ready == [[("theirs", READABLE)]]
    finally:
        _switch_interval(interval)
        thread.join()
