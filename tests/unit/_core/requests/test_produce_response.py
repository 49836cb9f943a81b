"""The fast path for a response that says that all was written; anything else must be left untouched."""

import struct
from typing import Any, cast

import pytest

from kafkaprod._core.requests.produce_response import settle_all
from tests.support.core.core_engine import TOPIC, Engine

TOPIC_ID = bytes(range(16))
VERSIONS = range(3, 14)


def _uvarint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def response(version, topics, throttle_ms=0):
    """Encode a response: topics is a list of (name or id, [(partition, error, base offset, append time)])."""
    flexible = version >= 9

    def count(n):
        return _uvarint(n + 1) if flexible else struct.pack(">i", n)

    out = count(len(topics))
    for name, partitions in topics:
        if version >= 13:
            out += name
        else:
            out += _uvarint(len(name) + 1) if flexible else struct.pack(">h", len(name))
            out += name
        out += count(len(partitions))
        for partition, error, base_offset, append_time in partitions:
            out += struct.pack(">ihqq", partition, error, base_offset, append_time)
            if version >= 5:
                out += struct.pack(">q", 0)
            if version >= 8:
                out += count(0) + (b"\x00" if flexible else b"\xff\xff")
            out += b"\x00" if flexible else b""
        out += b"\x00" if flexible else b""
    return out + struct.pack(">i", throttle_ms) + (b"\x00" if flexible else b"")


def _sent(partitions=3, topic_id=TOPIC_ID):
    engine = Engine(leaders=[1] * partitions)
    engine.lead([1] * partitions, topic_id=topic_id)
    futures = [engine.append(b"v%d" % partition, partition) for partition in range(partitions)]
    return engine, engine.take(), futures


def _name(version):
    return TOPIC_ID if version >= 13 else TOPIC.encode()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_full_success_settles_every_batch(version, order):
    engine, request, futures = _sent()
    body = response(version, [(_name(version), [(p, 0, 100 + p, -1) for p in order])], throttle_ms=77)
    assert settle_all(request, body, version) == 77
    request.finish()
    assert [future.result(0).offset for future in futures] == [100, 101, 102]
    assert engine.pool.in_use == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_append_time_is_taken_over(version):
    _, request, futures = _sent(1)
    assert settle_all(request, response(version, [(_name(version), [(0, 0, 5, 1234)])]), version) == 0
    assert futures[0].result(0).timestamp == 1234


@pytest.mark.parametrize("version", VERSIONS)
def test_two_topics_are_told_apart(version):
    engine = Engine(leaders=[1])
    engine.lead([1], topic_id=TOPIC_ID)
    engine.lead([1], "other", topic_id=bytes(16))
    first, second = engine.append(b"a"), engine.append(b"b", topic="other")
    request = engine.take()
    other = bytes(16) if version >= 13 else b"other"
    body = response(version, [(other, [(0, 0, 8, -1)]), (_name(version), [(0, 0, 4, -1)])])
    assert settle_all(request, body, version) == 0
    assert (first.result(0).offset, second.result(0).offset) == (4, 8)


UNUSUAL = {
    "an error code": [(0, 0, 1, -1), (1, 6, -1, -1), (2, 0, 1, -1)],
    "the error code -1": [(0, 0, 1, -1), (1, -1, -1, -1), (2, 0, 1, -1)],
    "a partition missing": [(0, 0, 1, -1), (1, 0, 1, -1)],
    "an unknown partition": [(0, 0, 1, -1), (1, 0, 1, -1), (3, 0, 1, -1)],
    "a partition twice": [(0, 0, 1, -1), (1, 0, 1, -1), (1, 0, 1, -1)],
    "one too many": [(0, 0, 1, -1), (1, 0, 1, -1), (2, 0, 1, -1), (2, 0, 1, -1)],
    "a negative partition": [(0, 0, 1, -1), (1, 0, 1, -1), (-1, 0, 1, -1)],
    "none": [],
}


@pytest.mark.parametrize("version", [3, 7, 8, 9, 13])
@pytest.mark.parametrize("partitions", UNUSUAL.values(), ids=UNUSUAL)
def test_anything_else_settles_nothing(version, partitions):
    _, request, futures = _sent()
    assert settle_all(request, response(version, [(_name(version), partitions)]), version) is None
    assert not any(future.done() for future in futures)
    assert [ref.state for ref in request.refs()] == ["sent"] * 3


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_unknown_topic_settles_nothing(version):
    _, request, futures = _sent()
    name = bytes(16) if version >= 13 else b"orderz"
    assert settle_all(request, response(version, [(name, [(p, 0, 1, -1) for p in range(3)])]), version) is None
    assert not any(future.done() for future in futures)


@pytest.mark.parametrize("version", [3, 5, 8, 9, 13])
def test_every_cut_and_every_extra_byte_settles_nothing(version):
    _, request, futures = _sent()
    body = response(version, [(_name(version), [(p, 0, 100 + p, -1) for p in range(3)])])
    for size in range(len(body)):
        assert settle_all(request, body[:size], version) is None
    assert settle_all(request, body + b"\x00", version) is None
    assert not any(future.done() for future in futures)
    assert settle_all(request, body, version) == 0


@pytest.mark.parametrize("version", [3, 9])
def test_impossible_counts_settle_nothing(version):
    _, request, _ = _sent()
    for count in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x80\x80", b"\xff\xff\xff\xff\x0f"):
        assert settle_all(request, count + b"\x00" * 50, version) is None


@pytest.mark.parametrize(
    "errors", [b"\xff\xff\xff\xff\xff\xff", b"\x80\x00\x00\x00\xff\xff", b"\x00\x00\x00\x00\xff\xfe"]
)
def test_negative_lengths_behind_a_success_settle_nothing(errors):
    """Version 8: a count of record errors or a message length that the declaration refuses, or does not call plain."""
    _, request, futures = _sent(1)
    plain = response(8, [(TOPIC.encode(), [(0, 0, 5, -1)])])
    at = plain.rindex(b"\x00\x00\x00\x00\xff\xff")
    assert settle_all(request, plain[:at] + errors + plain[at + 6 :], 8) is None
    assert not futures[0].done()
    assert settle_all(request, plain, 8) == 0
    assert futures[0].succeeded()


def test_body_that_is_no_buffer_is_refused():
    _, request, _ = _sent()
    with pytest.raises(TypeError):
        settle_all(request, cast(Any, "text"), 7)
