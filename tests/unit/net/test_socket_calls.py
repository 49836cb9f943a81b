"""The system calls of the sender's loop, on socket pairs."""

from __future__ import annotations

import errno
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kafkaprod.net.socket_calls import READY_SET, receive_into, send, wait_ready
from tests.support.core.core_engine import Engine

Pair = tuple[socket.socket, socket.socket]
READ, WRITE = 1, 2
MOST_BUFFERS = 1024
needs_epoll = pytest.mark.skipif(READY_SET != "epoll", reason="built without epoll")


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


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


@needs_epoll
def test_ready_files_come_with_what_they_are_ready_for(pair: Pair) -> None:
    with select.epoll() as files:
        files.register(pair[0].fileno(), select.EPOLLIN | select.EPOLLOUT)
        files.register(pair[1].fileno(), select.EPOLLIN)
        assert wait_ready(files.fileno(), 0) == [(pair[0].fileno(), WRITE)]
        pair[0].send(b"x")
        assert sorted(wait_ready(files.fileno(), 1000)) == sorted([(pair[0].fileno(), WRITE), (pair[1].fileno(), READ)])
        pair[1].close()
        assert wait_ready(files.fileno(), None) == [(pair[0].fileno(), READ | WRITE)]


@needs_epoll
def test_waiting_ends_at_a_fraction_of_a_millisecond() -> None:
    with select.epoll() as files:
        waits = []
        for _ in range(20):
            started = time.monotonic()
            assert wait_ready(files.fileno(), 0.3) == []
            waits.append(time.monotonic() - started)
        assert min(waits) >= 0.0003
        assert min(waits) < 0.001


def test_closed_set_is_an_error() -> None:
    with pytest.raises(OSError):
        wait_ready(-1, 0)


@needs_epoll
def test_thread_back_from_the_kernel_gets_the_gil_at_the_next_batch(pair: Pair) -> None:
    """Though the appending thread never lets go of it by itself: the interval after which it must is a minute here."""
    engine = Engine(leaders=[1], batch_size=1000, pool_bytes=1 << 20)
    is_waiting = threading.Event()
    was_ready: list[object] = []

    def wait() -> None:
        with select.epoll() as files:
            files.register(pair[1].fileno(), select.EPOLLIN)
            is_waiting.set()
            was_ready.append(wait_ready(files.fileno(), 30_000))

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
        assert was_ready == [[(pair[1].fileno(), READ)]]
    finally:
        _switch_interval(interval)
        thread.join()
