"""Splitting a batch that was called too large: bytes, order, sequences, results, memory."""

import zlib

import pytest

from kafkaprod._core.requests.settlement import expired_batches
from kafkaprod._core.requests.split import split_batch
from kafkaprod.compression import make_codec
from kafkaprod.errors import DeliveryTimeoutError, IllegalStateError
from tests.support.core.core_engine import TIMESTAMP, Engine, batches_of, only_ref, requeue, succeed, values_of
from tests.support.core.core_model import ModelRecord, decode_batch, encode_batch


def _split(request, target_bytes):
    count = split_batch(only_ref(request), target_bytes)
    request.finish()
    return count


def _drain_values(engine):
    values = []
    while (request := engine.drain.drain(1, engine.now_ms)) is not None:
        values.append(values_of(request))
        succeed(request)
    return values


@pytest.mark.parametrize("sizes", [[100] * 10, [1, 5000, 1], [0, 0, 0], [70_000, 300, 70_000]])
@pytest.mark.parametrize("target_bytes", [1, 300, 6000])
def test_children_hold_the_same_records_in_batches_up_to_the_target(sizes, target_bytes):
    engine = Engine(batch_size=1 << 20)
    records = [
        ModelRecord(b"k%d" % i, b"x" * size, (("h", None),), TIMESTAMP + (7 * i) % 5) for i, size in enumerate(sizes)
    ]
    for record in records:
        engine.append_record(record)
    count = _split(engine.take(), target_bytes)
    batches = []
    for request in engine.take_all():
        batches += batches_of(request)
        succeed(request)
    assert len(batches) == count
    found = [list(decode_batch(batch).records) for batch in batches]
    assert [record for part in found for record in part] == records
    assert [encode_batch(part) for part in found] == batches
    assert all(len(batch) <= target_bytes or len(part) == 1 for batch, part in zip(batches, found, strict=True))
    assert engine.pool.in_use == 0


def test_futures_follow_their_records_into_the_children():
    engine = Engine()
    futures = [engine.append(b"%d" % i) for i in range(6)]
    _split(engine.take(), 61 + 2 * 8)
    assert not any(future.done() for future in futures)
    for offset, request in zip([10, 20, 30], engine.take_all(), strict=True):
        succeed(request, offset)
    assert [future.result(0).offset for future in futures] == [10, 11, 20, 21, 30, 31]
    assert [result.told_count for result in engine.results] == [1] * 4


def test_children_can_be_split_again():
    engine = Engine()
    futures = [engine.append(b"%d" % i) for i in range(4)]
    _split(engine.take(), 61 + 2 * 8)
    first = engine.take()
    assert _split(first, 1) == 2
    for offset, request in enumerate(engine.take_all()):
        succeed(request, offset * 10)
    assert [future.result(0).offset for future in futures] == [0, 10, 20, 21]


def test_one_child_may_fail_alone():
    engine = Engine()
    futures = [engine.append(b"%d" % i) for i in range(2)]
    _split(engine.take(), 1)
    first, second = engine.take_all()
    only_ref(first).fail(DeliveryTimeoutError("late"))
    first.finish()
    succeed(second, 5)
    assert [future.failed() for future in futures] == [True, False]


def test_children_continue_the_sequence_of_the_original():
    engine = Engine(batch_size=1000, is_idempotent=True)
    for _ in range(4):
        engine.append(b"x" * 200)
    engine.append(b"y" * 900)
    too_large = engine.take()
    _split(too_large, 61 + 2 * 209 + 10)
    sequences = []
    while (request := engine.drain.drain(1, engine.now_ms)) is not None:
        sequences.append((only_ref(request).producer, only_ref(request).record_count))
        succeed(request)
    assert sequences == [((4000, 1, 0), 2), ((4000, 1, 2), 2), ((4000, 1, 4), 1)]


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_order_is_kept_against_batches_behind_it(is_idempotent):
    engine = Engine(batch_size=1000, is_idempotent=is_idempotent)
    engine.introduce()
    for value in (b"a", b"b", b"c"):
        for _ in range(2):
            engine.append(value * 450)
    first, second = engine.take(), engine.take()
    requeue(second, engine.now_ms, 0)
    _split(first, 600)
    assert [[value[:1] for value in part] for part in _drain_values(engine)] == [
        [b"a"],
        [b"a"],
        [b"b", b"b"],
        [b"c", b"c"],
    ]


def test_children_keep_the_age_of_the_original():
    engine = Engine()
    created = engine.now_ms
    engine.append(b"a")
    engine.append(b"b")
    engine.clock.advance(500)
    _split(engine.take(), 1)
    engine.append(b"young")
    assert [(ref.created_ms, ref.attempts) for ref in expired_batches(engine.accumulator, created)] == [
        (created, 0)
    ] * 2


def test_compressed_batch_is_split_and_compressed_again():
    engine = Engine(codec=make_codec("gzip"))
    for i in range(10):
        engine.append(b"%d" % i * 100)
    _split(engine.take(), 500)
    parts = []
    while (request := engine.drain.drain(1, engine.now_ms)) is not None:
        (batch,) = batches_of(request)
        parts += [record.value for record in decode_batch(batch, zlib.decompress(batch[61:], 31)).records]
        succeed(request)
    assert parts == [b"%d" % i * 100 for i in range(10)]


def test_split_may_pass_the_pools_bound_until_the_original_is_returned():
    engine = Engine(pool_bytes=4096, batch_size=3000)
    for _ in range(6):
        engine.append(b"x" * 400)
    request = engine.take()
    in_use = engine.pool.in_use
    split_batch(only_ref(request), 1000)
    assert engine.pool.in_use > in_use
    request.finish()
    assert len(_drain_values(engine)) == 3
    assert (engine.pool.in_use, engine.pool.refused_release_count) == (0, 0)


def test_batch_of_one_record_cannot_be_split():
    engine = Engine()
    engine.append(b"alone")
    request = engine.take()
    with pytest.raises(IllegalStateError, match="cannot split"):
        split_batch(only_ref(request), 1)
    assert values_of(request) == [b"alone"]
    succeed(request)


def test_queued_batch_cannot_be_split():
    engine = Engine()
    engine.append(b"a")
    engine.append(b"b")
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    with pytest.raises(IllegalStateError, match="cannot split"):
        split_batch(ref, 1)


def test_batch_with_an_outcome_is_not_split():
    engine = Engine()
    engine.append(b"a")
    engine.append(b"b")
    request = engine.take()
    ref = only_ref(request)
    ref.fail(DeliveryTimeoutError("late"))
    assert split_batch(ref, 1) == 0
    request.finish()
    assert engine.pool.in_use == 0
