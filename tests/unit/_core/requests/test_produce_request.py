"""Produce bodies: every version, several topics, buffers instead of copies."""

import gc
import random
from io import BytesIO

import pytest

from kafkaprod._core.requests.produce_request import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    ProduceRequest,
    RequestBody,
    SlabBuffer,
)
from kafkaprod.compression import make_codec
from kafkaprod.errors import IllegalStateError, UnsupportedVersionError
from tests.support.core.core_engine import TOPIC, Engine, batches_of, body_of, succeed
from tests.support.core.core_model import ModelRecord, decode_produce_body, encode_batch

IDS = {"a": bytes(range(16)), "b": bytes(range(16, 32))}


def _engine_with_two_topics(**options):
    engine = Engine(leaders=[9], **options)
    engine.lead([1, 1, 1], "b", topic_id=IDS["b"])
    engine.lead([1, 1], "a", topic_id=IDS["a"])
    for topic, partition in [("a", 1), ("b", 2), ("a", 0), ("b", 0)]:
        engine.append(f"{topic}{partition}".encode(), partition, topic)
    return engine


def _expected(version):
    names = [("b", 0), ("b", 2), ("a", 0), ("a", 1)]
    return [
        (
            IDS[topic] if version >= 13 else topic,
            partition,
            encode_batch([ModelRecord(None, f"{topic}{partition}".encode())]),
        )
        for topic, partition in names
    ]


@pytest.mark.parametrize("version", range(OLDEST_VERSION, NEWEST_VERSION + 1))
@pytest.mark.parametrize("transactional_id", [None, "tx-ü"])
def test_body_holds_every_batch_once_by_topic(version, transactional_id):
    request = _engine_with_two_topics().take()
    body = decode_produce_body(
        version, body_of(request, version, acks=1, timeout_ms=1234, transactional_id=transactional_id)
    )
    assert (body.transactional_id, body.acks, body.timeout_ms) == (transactional_id, 1, 1234)
    assert body.batches == _expected(version)
    assert (len(request), request.record_count, request.node_id) == (4, 4, 1)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_record_bytes_are_pointed_at_and_not_copied(codec):
    engine = Engine(batch_size=1 << 20, codec=make_codec(codec) if codec else None)
    for _ in range(100):
        engine.append(b"x" * 1000)
    request = engine.take()
    body = request.body(9, -1, 1000)
    buffers, size = body.from_byte(0), body.nbytes
    copied = sum(len(buffer) for buffer in buffers if not isinstance(buffer, SlabBuffer))
    assert size == sum(memoryview(buffer).nbytes for buffer in buffers)
    if codec is None:
        assert copied < 100
    else:
        assert size < 10_000


def test_small_batches_are_copied_between_the_headers():
    engine = Engine(leaders=[1] * 5)
    for partition, size in enumerate([10, 900, 5000, 10, 10]):
        engine.append(b"x" * size, partition)
    request = engine.take()
    before, *pointed_at, after = request.body(9, -1, 1000).from_byte(0)
    assert all(isinstance(buffer, SlabBuffer) for buffer in pointed_at)
    assert b"".join(bytes(memoryview(buffer)) for buffer in pointed_at) == batches_of(request)[2]
    assert bytes(before).count(b"x") == 910
    assert bytes(after).count(b"x") == 20
    succeed(request)
    assert bytes(after).count(b"x") == 20


def test_long_lengths_take_several_bytes_in_compact_encoding():
    engine = Engine(batch_size=1 << 20)
    for _ in range(100):
        engine.append(b"x" * 3000)
    request = engine.take()
    assert decode_produce_body(9, body_of(request, 9)).batches[0][2] == batches_of(request)[0]


@pytest.mark.parametrize("version", [2, 14, -1])
def test_unknown_version_is_refused(version):
    request = _engine_with_two_topics().take()
    with pytest.raises(UnsupportedVersionError, match=rf"version {version} is outside 3\.\.13"):
        request.body(version, -1, 1000)
    succeed(request)


def test_version_13_needs_topic_ids():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    assert not request.all_topic_ids_known
    with pytest.raises(IllegalStateError, match="id of topic 'orders'"):
        request.body(13, -1, 1000)
    assert _engine_with_two_topics().take().all_topic_ids_known


def test_finished_request_has_no_body():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    succeed(request)
    with pytest.raises(IllegalStateError, match="finished"):
        request.body(7, -1, 1000)


def test_references_come_by_topic_and_partition():
    request = _engine_with_two_topics().take()
    assert [(ref.topic, ref.partition) for ref in request.refs()] == [("b", 0), ("b", 2), ("a", 0), ("a", 1)]


# Buffers


def test_buffers_are_read_only_and_know_their_length():
    engine = Engine()
    engine.append(b"x" * 3000)
    request = engine.take()
    buffer = request.body(7, -1, 1000).from_byte(0)[1]
    assert isinstance(buffer, SlabBuffer)
    view = memoryview(buffer)
    assert view.readonly
    assert view.nbytes == len(buffer) == 61 + 3009
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(TypeError, match="read-write"):
        BytesIO(b"more bytes").readinto(buffer)  # asks for a writable buffer


def test_buffers_are_made_by_requests_only():
    with pytest.raises(TypeError):
        SlabBuffer()


def test_buffer_outlives_the_request_object():
    engine = Engine()
    engine.append(b"x" * 3000)
    request = engine.take()
    expected = batches_of(request)[0]
    view = memoryview(request.body(7, -1, 1000).from_byte(0)[1])
    succeed(request)
    del request
    gc.collect()
    assert bytes(view) == expected
    assert engine.pool.in_use == 4096
    view.release()
    gc.collect()
    assert engine.pool.in_use == 0


def test_several_views_of_one_buffer_count_each():
    engine = Engine()
    engine.append(b"x" * 3000)
    request = engine.take()
    buffer = request.body(7, -1, 1000).from_byte(0)[1]
    views = [memoryview(buffer) for _ in range(3)]
    succeed(request)
    for view in views:
        assert engine.pool.in_use == 4096
        view.release()
    assert engine.pool.in_use == 0


def test_empty_request_is_harmless():
    engine = Engine()
    request = ProduceRequest(engine.accumulator, 1)
    assert (len(request), request.refs()) == (0, [])
    request.finish()


def test_sums_are_those_of_the_batches():
    engine = Engine(leaders=[1, 1])
    engine.append(b"first", 0)
    engine.clock.advance(7)
    engine.append(b"x" * 100, 1)
    engine.append(b"y" * 300, 1)
    request = engine.take()
    sizes = [ref.size_bytes for ref in request.refs()]
    sums = request.sums(engine.now_ms)
    assert (sums.batch_count, sums.size_bytes) == (2, sum(sizes))
    assert (sums.sent_bytes, sums.largest_sent_bytes) == (sum(sizes), max(sizes)), "without compression the same"
    assert sums.largest_mean_record_bytes == max(sizes[0], sizes[1] / 2)
    assert sums.topics == [(TOPIC, 3, sum(sizes), sum(sizes))]
    first, second = (engine.now_ms - ref.created_ms for ref in request.refs())
    assert first == second + 7
    assert sums.queue_times == [(second, 1), (first, 1)]
    assert request.sums(engine.now_ms + 56).queue_times == [(second + 56, 1), (first + 56, 1)]
    assert request.sums(engine.now_ms + 1024).queue_times == [((second + first + 1) // 2 + 1024, 2)]
    assert request.sums(0).queue_times == [(0, 2)]
    assert request.sums(1 << 60).queue_times[0][1] == 2
    succeed(request)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_body_continues_at_any_byte(codec):
    engine = Engine(leaders=[1, 1, 1], batch_size=1 << 20, codec=make_codec(codec) if codec else None)
    engine.append(b"x" * 10, 1)
    for partition in (0, 2):
        engine.append(random.Random(partition).randbytes(3000), partition)  # what no codec makes small
    request = engine.take()
    body = request.body(9, -1, 1000)
    whole = body_of(request, 9, timeout_ms=1000)
    assert body.nbytes == len(whole)
    for start in range(len(whole) + 1):
        assert b"".join(bytes(memoryview(buffer)) for buffer in body.from_byte(start)) == whole[start:]
    assert [len(body.from_byte(5, limit)) for limit in (0, 1, 4)] == [0, 1, 4]
    succeed(request)


def test_bodies_are_made_by_requests_only():
    with pytest.raises(TypeError):
        RequestBody()
