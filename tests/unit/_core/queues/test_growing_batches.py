"""Batches are sendable from batch_size on, and take records up to max_batch_size until the sender takes them."""

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.requests.split import limit_batches, split_batch
from kafkaprod.compression import decompress
from tests.support.codecs import codec_of
from tests.support.core.core_engine import (
    TIMESTAMP,
    TOPIC,
    Engine,
    batches_of,
    only_ref,
    requeue,
    sent_records,
    snapshot,
    succeed,
    values_of,
)
from tests.support.core.core_model import ModelRecord, decode_batch, encode_batch

SIZE, MOST = 2000, 6000
RECORD = b"x" * 491  # a record of 500 bytes


def growing(**more):
    """An engine whose sender is awake: what wakes it is counted by `woken_by`."""
    return Engine(batch_size=SIZE, max_batch_size=MOST, **more)


def woken_by(engine, count, partition=0):
    """How many of the next appends wake a sender that waits for full batches only."""
    before = engine.wakeups
    for _ in range(count):
        engine.accumulator.set_sender_sleeps(True)
        engine.accumulator.let_new_batches_linger()
        engine.append(RECORD, partition)
    return engine.wakeups - before


def block(engine, values):
    topic = engine.accumulator.topics[TOPIC]
    return Block(engine.accumulator, topic, Column.from_list(values), timestamp=TIMESTAMP, partition=0)


def take_sizes(engine, node_id=1):
    sizes = []
    for request in engine.take_all(node_id):
        sizes += [len(batch) for batch in batches_of(request)]
        succeed(request)
    return sizes


def test_batch_that_crosses_batch_size_wakes_the_sender_once_and_does_not_linger():
    engine = growing(linger_ms=1000)
    assert woken_by(engine, 3) == 0
    assert engine.ready_nodes() == []
    assert woken_by(engine, 1) == 1
    assert engine.ready_nodes() == [1]
    assert woken_by(engine, 4) == 0
    assert len(values_of(engine.take())) == 8


def test_batch_behind_another_grows_without_waking_the_sender():
    engine = growing()
    woken_by(engine, 11)
    assert engine.accumulator.incomplete_batch_count == 1
    assert woken_by(engine, 1) == 1  # the first batch has its most bytes, and is closed
    assert engine.accumulator.incomplete_batch_count == 2
    assert woken_by(engine, 10) == 0
    assert engine.accumulator.incomplete_batch_count == 2
    assert [size <= MOST for size in take_sizes(engine)] == [True, True]


def test_batch_ends_at_its_most_bytes_exactly():
    engine = growing()
    engine.append(b"a" * (MOST - 61 - 9 - 500))
    engine.append(b"b" * 491)
    engine.append(b"c")
    assert take_sizes(engine) == [MOST, 61 + 8]


def test_record_above_the_most_bytes_gets_its_own_batch():
    engine = growing()
    for size in [10, 50_000, 10]:
        engine.append(b"x" * size)
    assert [size > MOST for size in take_sizes(engine)] == [False, True, False]


def test_batch_size_alone_is_what_a_batch_has_at_most():
    engine = Engine(batch_size=SIZE)
    for _ in range(20):
        engine.append(RECORD)
    assert max(take_sizes(engine)) <= SIZE


def test_no_batching_is_one_record_each():
    engine = Engine(batch_size=0, max_batch_size=0)
    for _ in range(5):
        engine.append(RECORD)
    assert len(take_sizes(engine)) == 5


@pytest.mark.parametrize("batch_size", [*range(900, 1300, 7), 4096, 65_500, 70_000])
def test_records_are_read_back_wherever_the_batch_crossed(batch_size):
    engine = Engine(batch_size=batch_size, max_batch_size=200_000)
    records = [ModelRecord(b"k", bytes([i % 251]) * (i * 37 % 900)) for i in range(300)]
    for record in records:
        engine.append_record(record)
    assert batches_of(engine.take()) == [encode_batch(records)]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
def test_compressed_batch_that_grew_is_read_back(codec):
    engine = Engine(batch_size=1 << 18, max_batch_size=1_000_000, codec=codec_of(codec))
    values = [bytes([i % 251, i % 7]) * 450 for i in range(1000)]
    for value in values:
        engine.append(value)
    (batch,) = batches_of(engine.take())
    plain = bytes(decompress(codec_of(codec).codec_id, batch[61:], 1 << 20))
    assert [record.value for record in decode_batch(batch, plain).records] == values


def test_crossing_at_every_byte_of_a_slab_keeps_the_sum():
    for size in range(61 + 700, 61 + 1600):
        engine = Engine(batch_size=size, max_batch_size=20_000)
        records = [ModelRecord(None, bytes([i]) * 190) for i in range(40)]
        for record in records:
            engine.append_record(record)
        assert batches_of(engine.take()) == [encode_batch(records)]


def test_pool_that_is_exhausted_at_a_crossing_changes_nothing():
    engine = Engine(pool_bytes=4096, batch_size=900, max_batch_size=1 << 20)
    while engine.accumulator.incomplete_batch_count < 2 and engine.pool.available >= 1024:
        engine.append(b"x" * 50)
    while engine.try_append(b"x" * 50) is not None:
        pass
    before = snapshot(engine)
    assert engine.try_append(b"x" * 900) is None
    assert snapshot(engine) == before
    assert only_ref(engine.take()).state == "sent"


def test_runs_of_a_block_name_the_batches_that_grew():
    engine = growing()
    engine.append(RECORD)
    rows = block(engine, [RECORD] * 300)  # held for 256 rows, then for the others
    assert rows.run(engine.now_ms)
    counts = [count for _, _, _, count in rows.row_runs]
    assert counts[0] == 10
    assert max(counts) <= 11
    assert sum(counts) == 300


def test_block_of_ten_megabytes_makes_batches_of_one():
    engine = Engine(
        pool_bytes=1 << 25, batch_size=1 << 18, max_batch_size=1_000_000, max_request_bytes=1 << 24, linger_ms=1000
    )
    values = [b"v" * 980] * 10_000
    assert block(engine, values).run(engine.now_ms)
    sizes = take_sizes(engine)
    assert len(sizes) == 10
    assert min(sizes[:-1]) > 999_000


def test_refusal_as_too_large_limits_the_next_batches_of_the_topic():
    engine = Engine(leaders=[1, 1], batch_size=2000, max_batch_size=9000)
    for partition in (0, 1):
        for _ in range(17):
            engine.append(RECORD, partition)
    request = engine.take()
    for ref in request.refs():
        limit_batches(ref, ref.size_bytes // 2)
        split_batch(ref, ref.size_bytes // 2)
    request.finish()
    take_sizes(engine)
    for partition in (0, 1):
        for _ in range(40):
            engine.append(RECORD, partition)
    assert max(take_sizes(engine)) <= 4300


def test_limit_below_batch_size_holds_until_the_topic_is_created_again():
    engine = Engine(batch_size=8000, max_batch_size=8000)
    engine.lead([1], topic_id=b"1" * 16)
    for _ in range(15):
        engine.append(RECORD)
    request = engine.take()
    limit_batches(only_ref(request), 3000)
    limit_batches(only_ref(request), 5000)  # a higher one teaches nothing
    succeed(request)
    engine.lead([1, 1], topic_id=b"1" * 16)
    for partition in (0, 1):  # new partitions, too
        for _ in range(15):
            engine.append(RECORD, partition)
    assert max(take_sizes(engine)) <= 3000
    engine.lead([1, 1], topic_id=b"2" * 16)
    for _ in range(15):
        engine.append(RECORD)
    assert max(take_sizes(engine)) > 7000


def test_batch_that_comes_again_grows_no_more():
    engine = growing()
    for _ in range(5):
        engine.append(RECORD)
    requeue(engine.take(), engine.now_ms, backoff_ms=0)
    engine.append(RECORD)
    assert [len(values_of(request)) for request in engine.take_all()] == [5, 1]


def test_records_without_a_key_leave_a_partition_and_find_its_batch_open_again():
    engine = Engine(leaders=[1, 1], batch_size=SIZE, max_batch_size=MOST, linger_ms=1000)
    for _ in range(10):
        engine.append(RECORD, -1)
    assert engine.accumulator.incomplete_batch_count == 2
    assert engine.ready_nodes() == [1]
    assert len(sent_records(engine)) == 10


def test_batches_stay_small_until_the_path_of_their_node_is_named():
    engine = growing(first_limit=SIZE)
    for _ in range(8):
        engine.append(RECORD)
    assert max(take_sizes(engine)) <= SIZE
    engine.drain.limit_path(1, 0)
    for _ in range(8):
        engine.append(RECORD)
    assert max(take_sizes(engine)) > SIZE
    engine.lead([2])  # a node that was not named yet
    for _ in range(8):
        engine.append(RECORD)
    assert max(take_sizes(engine, node_id=2)) <= SIZE


@pytest.mark.parametrize("counts", [(1, 2), (2, 3, 8), (3, 1, 4)])
@pytest.mark.parametrize("is_measured", [False, True])
def test_partitions_that_come_to_a_node_later_grow_as_far_as_its_path_carries(
    counts: tuple[int, ...], *, is_measured: bool
) -> None:
    most = SIZE + 3 * (len(RECORD) + 10)
    engine = growing()
    engine.drain.limit_path(1, most, is_measured)
    for count in counts:
        engine.lead([1] * count)
        for partition in range(count):
            for _ in range(30):
                engine.append(RECORD, partition)
            sizes = take_sizes(engine)
            assert SIZE < max(sizes) <= most, partition
