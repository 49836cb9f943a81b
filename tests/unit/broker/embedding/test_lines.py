"""Lines of JSON between two processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.lines import JsonLines


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_lines_come_one_after_another_however_they_were_cut(ends: tuple[socket.socket, socket.socket]) -> None:
    lines = JsonLines(ends[0], ends[0])
    ends[1].sendall(b'{"a": 1}\n{"b"')
    assert lines.receive(30) == {"a": 1}
    with pytest.raises(TimeoutError, match=r"no line came within 0\.001 s"):
        lines.receive(0.001)
    ends[1].sendall(b": 2}\n")
    assert lines.receive(30) == {"b": 2}


@pytest.mark.parametrize("unread", [b"", b"not read"])
def test_the_end_of_the_other_side_is_no_line(ends: tuple[socket.socket, socket.socket], unread: bytes) -> None:
    lines = JsonLines(ends[0], ends[0])
    ends[0].sendall(unread)
    ends[1].sendall(b'{"last": true}\n{"half')
    ends[1].close()
    assert lines.receive() == {"last": True}
    assert lines.receive() is None
    with pytest.raises(BrokenPipeError):
        lines.send({})
