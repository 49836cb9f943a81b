"""One batch, seen through the accumulator: sizes, growth over slabs, seal, states."""

import pytest

from kafkaprod.compression import make_codec
from kafkaprod.errors import IllegalStateError
from tests.support.codecs import codec_of
from tests.support.core.core_engine import TIMESTAMP, Engine, batches_of, only_ref, succeed, values_of
from tests.support.core.core_model import ModelRecord, decode_batch, encode_batch


@pytest.mark.parametrize(
    "sizes", [[0], [1] * 100, [900, 900, 900], [5000], [1000, 70_000, 10], [300_000], [63, 64, 8191, 8192]]
)
def test_records_over_any_number_of_slabs_make_one_batch(sizes):
    engine = Engine(batch_size=1 << 20)
    records = [ModelRecord(b"k", bytes([i % 251]) * size) for i, size in enumerate(sizes)]
    for record in records:
        engine.append_record(record)
    request = engine.take()
    assert batches_of(request) == [encode_batch(records)]
    succeed(request)
    assert engine.pool.in_use == 0


def test_batch_takes_records_up_to_its_size_exactly():
    engine = Engine(batch_size=2000)
    engine.append(b"a" * 900)
    first_size = 61 + 900 + 9
    room = 2000 - first_size
    engine.append(b"b" * (room - 9))  # the record around the value needs 9 bytes
    engine.append(b"c")
    requests = engine.take_all()
    assert [len(batches_of(request)[0]) for request in requests] == [2000, 61 + 8]


def test_record_one_byte_too_large_opens_another_batch():
    engine = Engine(batch_size=2000)
    engine.append(b"a" * 900)
    engine.append(b"b" * (2000 - (61 + 900 + 9) - 9 + 1))
    assert [values_of(request) for request in engine.take_all()] == [[b"a" * 900], [b"b" * 1022]]


def test_record_larger_than_the_batch_size_gets_its_own_batch():
    engine = Engine(batch_size=2000)
    for size in [10, 50_000, 10]:
        engine.append(b"x" * size)
    assert [len(values_of(request)) for request in engine.take_all()] == [1, 1, 1]


@pytest.mark.parametrize("partition", [0, -1])
@pytest.mark.parametrize("batch_size", [0, 1, 70])
def test_records_as_large_as_a_batch_go_alone(batch_size, partition):
    engine = Engine(batch_size=batch_size)
    for number in range(20):
        engine.append(b"%03d" % number, partition)
    assert [len(values_of(request)) for request in engine.take_all()] == [1] * 20


def test_a_record_as_large_as_a_batch_does_not_linger():
    engine = Engine(leaders=[2, 1], batch_size=500, linger_ms=1000)
    engine.append(b"small")
    assert engine.ready_nodes() == []
    engine.append(b"x" * 500, 1)
    assert engine.ready_nodes() == [1]


def test_open_batch_costs_little():
    engine = Engine(leaders=[1] * 100, batch_size=262144)
    for partition in range(100):
        engine.append(b"x" * 100, partition)
    assert engine.pool.in_use == 100 * 1024


def test_batch_does_not_take_more_slabs_than_it_may_grow_to():
    engine = Engine(batch_size=20_000)
    while engine.accumulator.incomplete_batch_count < 2:
        engine.append(b"x" * 500)
    assert engine.pool.in_use <= 1024 + 4096 + 16384 + 4096 + 16384


def test_batch_begins_with_the_slab_that_the_partitions_last_batch_would_have_needed():
    engine = Engine(batch_size=262_144)
    engine.append(b"x" * 100)
    assert engine.pool.in_use == 1024
    while engine.accumulator.incomplete_batch_count < 2:
        engine.append(b"x" * 5000)
    assert engine.pool.in_use > 4 * 65_536
    for request in engine.take_all():  # one that was full, and one of 5,000 bytes and its header
        succeed(request)
    engine.append(b"x" * 100)
    assert engine.pool.in_use == 8192
    for request in engine.take_all():
        succeed(request)
    engine.append(b"x" * 100)
    assert engine.pool.in_use == 1024


@pytest.mark.parametrize(
    "deltas", [[0, 5, 3], [0, -5, -3], [0, -TIMESTAMP - 1], [0, 2**62], [-TIMESTAMP - 1, 2**63 - 1 - TIMESTAMP]]
)
def test_timestamps_may_come_in_any_order(deltas):
    engine = Engine()
    records = [ModelRecord(None, b"v", (), TIMESTAMP + delta) for delta in deltas]
    for record in records:
        engine.append_record(record)
    request = engine.take()
    (batch,) = batches_of(request)
    assert decode_batch(batch).max_timestamp == max(record.timestamp for record in records)
    wrapped = [r._replace(timestamp=(r.timestamp + 2**63) % 2**64 - 2**63) for r in decode_batch(batch).records]
    assert wrapped == records
    succeed(request)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batch_has_the_codec_in_its_attributes_and_gives_its_memory_back(codec):
    engine = Engine(codec=make_codec(codec))
    for i in range(100):
        engine.append(b"value %d" % i)
    request = engine.take()
    (batch,) = batches_of(request)
    assert batch[22] & 7 == codec_of(codec).codec_id
    succeed(request)
    assert engine.pool.in_use == 0


def test_sending_again_changes_no_byte():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    before = batches_of(request)
    only_ref(request).requeue(engine.now_ms, 0)
    request.finish()
    again = engine.take()
    assert batches_of(again) == before
    succeed(again)


def test_states_go_from_closed_over_sent_to_done():
    engine = Engine()
    engine.append(b"v")
    request = engine.take()
    ref = only_ref(request)
    assert (ref.state, ref.is_done, ref.was_sent) == ("sent", False, True)
    ref.requeue(engine.now_ms, 0)
    assert (ref.state, ref.attempts) == ("closed", 1)
    with pytest.raises(IllegalStateError, match="not in a request"):
        ref.requeue(engine.now_ms, 0)
    request.finish()
    again = engine.take()
    assert ref.succeed(5)
    assert (ref.state, ref.is_done) == ("done", True)
    assert not ref.succeed(6)
    assert not ref.fail(ValueError("too late"))
    assert not ref.requeue(engine.now_ms, 0)
    again.finish()
    assert engine.pool.in_use == 0


def test_size_is_known_while_the_batch_grows():
    engine = Engine()
    engine.append(b"v" * 100)
    request = engine.take()
    assert only_ref(request).size_bytes == len(batches_of(request)[0])
    succeed(request)
