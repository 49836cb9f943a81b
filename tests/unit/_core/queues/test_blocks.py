"""Blocks: rows into partitions, results per segment, full pool at a record boundary, wrong blocks refused whole."""

import array
import gc
import struct
import sys
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import pytest

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.requests.settlement import expired_batches
from kafkaprod.errors import (
    ArgumentTypeError,
    ForkedProducerError,
    InvalidRecordError,
    ProducerClosedError,
    RecordTooLargeError,
)
from tests.support.core.core_engine import TIMESTAMP, TOPIC, Engine, batches_of, snapshot, succeed
from tests.support.core.core_model import decode_batch
from tests.support.core.faces import partition_of_key


def block(engine, values, **options):
    options.setdefault("timestamp", TIMESTAMP)
    if isinstance(values, list):
        values = Column.from_list(values)
    return Block(engine.accumulator, engine.accumulator.topics[TOPIC], values, **options)


def queued_values(engine):
    """What is queued, by partition, in order; settles it."""
    found: dict[int, list[Any]] = {}
    for request in engine.take_all():
        for ref, batch in zip(request.refs(), batches_of(request), strict=True):
            found.setdefault(ref.partition, []).extend(record.value for record in decode_batch(batch).records)
        succeed(request)
    return found


def test_rows_go_to_their_partitions_in_order():
    engine = Engine(leaders=[1, 1, 1])
    rows = [b"%d" % i for i in range(10)]
    made = block(engine, rows, partitions=array.array("i", [i % 3 for i in range(10)]))
    assert made.run(engine.now_ms)
    assert (made.row_count, made.rows_appended) == (10, 10)
    assert queued_values(engine) == {p: rows[p::3] for p in range(3)}


def test_keyed_rows_go_by_murmur2():
    engine = Engine(leaders=[1] * 7)
    keys = [b"key-%d" % i for i in range(100)]
    made = block(engine, keys, key=Column.from_list(keys))
    assert made.run(engine.now_ms)
    assert np.frombuffer(memoryview(made.partition_of_rows()), "i4").tolist() == [
        partition_of_key(key, 7) for key in keys
    ]


def test_rows_without_key_stick_to_one_partition_for_a_batch():
    engine = Engine(leaders=[1] * 20, batch_size=5000)
    made = block(engine, [b"x" * 100] * 500)
    assert made.run(engine.now_ms)
    partitions = np.frombuffer(memoryview(made.partition_of_rows()), "i4")
    switches = int((np.diff(partitions) != 0).sum())
    assert 4 <= switches <= 500 * 109 // 5000 + 1


def test_given_partition_wins_over_the_key_and_minus_one_lets_it_choose():
    engine = Engine(leaders=[1] * 5)
    made = block(engine, [b"v"] * 3, key=Column.constant(b"key-1"), partitions=array.array("i", [3, -1, 0]))
    made.run(engine.now_ms)
    assert list(memoryview(made.partition_of_rows())) == [3, partition_of_key(b"key-1", 5), 0]


def test_timestamps_may_be_given_per_row_or_once():
    engine = Engine(leaders=[1, 1])
    block(engine, [b"a", b"b"], timestamps=array.array("q", [5, -1]), partition=0).run(engine.now_ms)
    block(engine, [b"c", b"d"], timestamp=77, partition=1).run(engine.now_ms)
    first, second = (decode_batch(batch).records for batch in batches_of(engine.take()))
    assert [record.timestamp for record in (*first, *second)] == [5, -1, 77, 77]


def test_constant_columns_need_a_row_count():
    engine = Engine()
    with pytest.raises(InvalidRecordError, match="row_count is needed"):
        block(engine, Column.constant(b"same"))
    assert block(engine, Column.constant(b"same"), row_count=3).run(engine.now_ms)
    assert queued_values(engine) == {0: [b"same"] * 3}


def test_block_of_no_rows_is_appended_at_once():
    engine = Engine()
    made = block(engine, [])
    assert made.run(engine.now_ms)
    assert (made.row_runs, made.memory_need, len(made.partition_of_rows())) == ([], 0, 0)
    assert engine.pool.in_use == 0


def test_segments_say_where_each_row_stands():
    engine = Engine(leaders=[1, 1], batch_size=1000)
    made = block(engine, [b"x" * 300] * 8, partitions=array.array("i", [0, 1] * 4))
    made.run(engine.now_ms)
    places = [(partition, first, count) for _, partition, first, count in made.row_runs]
    assert sorted(places) == [(0, 0, 1), (0, 0, 3), (1, 0, 1), (1, 0, 3)]
    for request in engine.take_all():
        succeed(request, 50)
    assert all(result.is_done and result.base_offset == 50 for result, *_ in made.row_runs)


def test_rows_between_others_records_get_their_own_segment():
    engine = Engine()
    engine.append(b"mine")
    first = block(engine, [b"a", b"b"], partition=0)
    first.run(engine.now_ms)
    engine.append(b"mine")
    second = block(engine, [b"c"], partition=0)
    second.run(engine.now_ms)
    assert [(at, count) for _, _, at, count in first.row_runs] == [(1, 2)]
    assert [(at, count) for _, _, at, count in second.row_runs] == [(4, 1)]
    assert first.row_runs[0][0] is second.row_runs[0][0]


def test_full_pool_stops_a_block_at_a_record_boundary_and_it_goes_on_later():
    engine = Engine(leaders=[1, 1], pool_bytes=8192, batch_size=2000)
    rows = [b"%03d" % i + b"x" * 400 for i in range(40)]
    made = block(engine, rows, partitions=array.array("i", [0, 1] * 20))
    runs = 0
    found: dict[int, list[Any]] = {0: [], 1: []}
    while not made.run(engine.now_ms):
        runs += 1
        assert 0 < made.rows_appended < 40
        assert 0 < made.memory_need <= engine.pool.capacity
        partitions = list(memoryview(made.partition_of_rows()))
        assert partitions == [0, 1] * 20
        for partition, values in queued_values(engine).items():
            found[partition] += values
    for partition, values in queued_values(engine).items():
        found[partition] += values
    assert runs > 1
    assert found == {0: rows[0::2], 1: rows[1::2]}
    assert sum(count for *_, count in made.row_runs) == 40
    assert engine.pool.in_use == 0


def test_rows_not_yet_placed_have_no_partition():
    engine = Engine(leaders=[1, 1], pool_bytes=2048, batch_size=1000)
    made = block(engine, [b"x" * 600] * 10)
    assert not made.run(engine.now_ms)
    partitions = list(memoryview(made.partition_of_rows()))
    assert made.rows_left == list(range(made.rows_appended, 10))
    assert all(p >= 0 for p in partitions[: made.rows_appended])
    assert set(partitions[made.rows_appended :]) == {-1}


def test_rows_left_are_the_last_ones_of_each_partition():
    engine = Engine(leaders=[1, 1, 1], pool_bytes=8192, batch_size=2000)
    rows = [b"%02d" % i + b"x" * 400 for i in range(60)]
    made = block(engine, rows, key=Column.from_list([b"k%d" % i for i in range(60)]))
    assert not made.run(engine.now_ms)
    left = made.rows_left
    assert len(left) == 60 - made.rows_appended
    assert left == sorted(left)
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for i in range(60):
        expected[partition_of_key(b"k%d" % i, 3)].append(rows[i])
    taken = queued_values(engine)
    for partition, values in taken.items():
        assert values == expected[partition][: len(values)]
    assert sorted(chain.from_iterable(taken.values())) == [row for i, row in enumerate(rows) if i not in left]


def test_rows_for_a_refused_node_are_left_out_and_the_others_appended():
    engine = Engine(leaders=[1, 2, 1], pool_bytes=1 << 20)
    rows = [b"%02d" % i for i in range(60)]
    made = block(engine, rows, partitions=array.array("i", [i % 3 for i in range(60)]))
    assert made.refuse_node(2)
    assert not made.refuse_node(2)  # nothing new
    assert not made.refuse_node(7)
    assert made.run(engine.now_ms)
    assert made.is_complete
    assert (made.rows_appended, made.memory_need) == (40, 0)
    assert made.rows_left == list(range(1, 60, 3))
    assert list(memoryview(made.partition_of_rows())) == [0, 1, 2] * 20
    assert queued_values(engine) == {0: rows[0::3], 2: rows[2::3]}


def test_rows_are_refused_in_the_middle_of_a_block_too():
    engine = Engine(leaders=[1, 2], pool_bytes=8192, batch_size=2000)
    rows = [b"%02d" % i + b"x" * 400 for i in range(60)]
    made = block(engine, rows, partitions=array.array("i", [0, 1] * 30))
    assert not made.run(engine.now_ms)
    found = queued_values(engine)
    assert made.refuse_node(2)
    while not made.run(engine.now_ms):
        for partition, values in queued_values(engine).items():
            found.setdefault(partition, []).extend(values)
    for partition, values in queued_values(engine).items():
        found.setdefault(partition, []).extend(values)
    assert found[0] == rows[0::2]
    taken = found.get(1, [])
    assert taken == rows[1::2][: len(taken)]
    assert [rows[row] for row in made.rows_left] == rows[1::2][len(taken) :]
    assert made.rows_appended + len(made.rows_left) == 60


def test_rows_that_find_another_partition_are_not_refused():
    engine = Engine(leaders=[1, 2])
    made = block(engine, [b"a"] * 10)
    assert made.run(engine.now_ms)
    assert not made.refuse_node(1)


def test_keyed_rows_between_rows_without_a_key_keep_the_order_of_their_partition():
    engine = Engine(leaders=[1])
    rows = [b"%d" % i for i in range(50)]
    made = block(engine, rows, key=Column.from_list([b"k" if i % 3 == 0 else None for i in range(50)]))
    assert made.run(engine.now_ms)
    assert queued_values(engine) == {0: rows}


def test_waiting_block_goes_first_with_its_ticket():
    engine = Engine(pool_bytes=1024, batch_size=1000)
    engine.append(b"x" * 700)
    made = block(engine, [b"y" * 700])
    assert not made.run(engine.now_ms)
    ticket = engine.pool.enqueue_waiter(made.memory_need, lambda: None)
    succeed(engine.take())
    assert engine.try_append(b"overtakes") is None
    assert made.run(engine.now_ms, ticket)
    engine.pool.dequeue_waiter(ticket)
    assert queued_values(engine) == {0: [b"y" * 700]}


def test_block_that_is_dropped_half_way_leaves_its_records_queued():
    engine = Engine(pool_bytes=4096, batch_size=2000)
    made = block(engine, [b"x" * 400] * 40)
    assert not made.run(engine.now_ms)
    appended = made.rows_appended
    del made
    gc.collect()
    assert len(queued_values(engine)[0]) == appended
    assert engine.pool.in_use == 0


def test_caller_may_change_its_lists_once_the_block_is_made():
    engine = Engine()
    values = [bytes(bytearray(b"value" * 50)) for _ in range(50)]
    headers: list[list[Any]] = [[("h", bytes(bytearray(b"header" * 50)))] for _ in range(50)]
    made = block(engine, Column.from_list(values), headers=Headers.from_python(headers))
    values.clear()
    for row in headers:
        row[0] = ("h", None)
    gc.collect()
    made.run(engine.now_ms)
    (batch,) = batches_of(engine.take())
    assert {record.headers for record in decode_batch(batch).records} == {(("h", b"header" * 50),)}


def test_headers_per_row_and_for_all():
    engine = Engine(leaders=[1, 1])
    block(engine, [b"a", b"b"], partition=0, headers=Headers.from_python([[("h", b"1")], None])).run(0)
    block(engine, [b"c", b"d"], partition=1, headers=Headers.from_python([("g", None)])).run(0)
    first, second = (decode_batch(batch).records for batch in batches_of(engine.take()))
    assert [record.headers for record in (*first, *second)] == [(("h", b"1"),), (), (("g", None),), (("g", None),)]


def test_headers_from_columns():
    engine = Engine()
    headers = Headers.from_columns(
        np.array([0, 2, 2, 3], "i4"), Column.from_list([b"a", b"b", b"c"]), Column.from_list([b"1", None, b""])
    )
    block(engine, [b"v"] * 3, headers=headers).run(0)
    (batch,) = batches_of(engine.take())
    assert [record.headers for record in decode_batch(batch).records] == [(("a", b"1"), ("b", None)), (), (("c", b""),)]


def test_topic_that_grows_between_blocks_and_runs():
    engine = Engine(leaders=[1, 1])
    made = block(engine, [b"v"] * 10, key=Column.from_list([b"k%d" % i for i in range(10)]))
    engine.lead([1] * 50)
    assert made.run(engine.now_ms)
    assert set(memoryview(made.partition_of_rows())) <= {0, 1}


def test_outcome_known_before_the_result_object_is_asked_for_is_kept():
    engine = Engine(batch_size=1000)
    made = block(engine, [b"a", b"b"], partition=0)
    made.run(engine.now_ms)
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    own = ValueError("row b")
    ref.fail(KeyError("all"), {1: own})
    (result, *_) = made.row_runs[0]
    assert result.error_of(1) is own


def test_failure_before_anybody_asked_is_told_once():
    engine = Engine(batch_size=1000)
    made = block(engine, [b"a", b"b"], partition=0)
    made.run(engine.now_ms)
    assert engine.results == []
    (ref,) = expired_batches(engine.accumulator, engine.now_ms)
    ref.fail(ValueError("lost"))
    assert [result.told_count for result in engine.results] == [1]
    assert made.row_runs[0][0] is engine.results[0]


def test_success_makes_a_result_only_when_asked():
    engine = Engine()
    made = block(engine, [b"a", b"b"], partition=0)
    made.run(engine.now_ms)
    succeed(engine.take(), 7)
    assert engine.results == []
    ((result, *_),) = made.row_runs
    assert (result.base_offset, result.told_count) == (7, 1)


def test_input_is_let_go_of_once_all_of_it_is_appended():
    engine = Engine()
    column = Column.from_list([b"a", b"b"])
    made = block(engine, column, partition=0)
    before = sys.getrefcount(column)
    made.run(engine.now_ms)
    assert sys.getrefcount(column) == before - 1
    assert (made.rows_left, made.memory_need) == ([], 0)


# Wrong blocks


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": Column.from_list([b"k"])}, InvalidRecordError, "key has 1 rows, value 3"),
        ({"headers": Headers.from_python([None, None])}, InvalidRecordError, "headers has 2 rows, value 3"),
        ({"row_count": 4}, InvalidRecordError, "value has 3 rows, row_count 4"),
        ({"timestamps": array.array("q", [1, 2])}, InvalidRecordError, "timestamps has 2 rows, the block 3"),
        ({"timestamps": [1, 2]}, InvalidRecordError, "timestamps has 2 rows, the block 3"),
        ({"timestamps": [1, "x", 3]}, ArgumentTypeError, r"timestamps\[1\]: timestamps must be int .*, not str"),
        ({"timestamps": [1, 2**70, 3]}, InvalidRecordError, r"timestamps\[1\]: timestamps=\d+ is outside"),
        ({"timestamps": np.zeros((3, 1), "i8")}, InvalidRecordError, "timestamps must have one dimension, not 2"),
        ({"timestamps": {1, 2, 3}}, InvalidRecordError, "timestamps must be an int64 array or a list of int, not set"),
        (
            {"timestamps": np.zeros(3, "M8[ms]")},
            InvalidRecordError,
            "timestamps must be an int64 array or a list of int, not ndarray",
        ),
        ({"timestamps": array.array("q", [1, -2, 3])}, InvalidRecordError, r"timestamps\[1\]=-2 must be at least 0"),
        ({"timestamps": np.zeros(3, "f8")}, InvalidRecordError, "timestamps must be int64, not items of format 'd'"),
        ({"timestamps": np.full(3, 2**63, "u8")}, InvalidRecordError, r"timestamps\[0\]: timestamps=\d+ is outside"),
        ({"timestamps": np.zeros(3, ">i8")}, InvalidRecordError, "timestamps must be int64"),
        ({"timestamp": -2}, InvalidRecordError, "timestamp=-2 is outside -1"),
        ({"partitions": array.array("q", [0, 5, 0])}, InvalidRecordError, r"partitions\[1\]=5 of topic"),
        (
            {"partitions": array.array("q", [0, 2**32, 0])},
            InvalidRecordError,
            r"partitions\[1\]: partitions=4294967296",
        ),
        ({"partitions": np.zeros(3, "f4")}, InvalidRecordError, "partitions must be int32, not items of format 'f'"),
        ({"row_count": 2**62 - 1}, InvalidRecordError, "row_count=4611686018427387903 is outside 0..1099511627776"),
        ({"row_count": -1}, InvalidRecordError, "row_count=-1 is outside"),
        (
            {"partitions": array.array("i", [0, 5, 0])},
            InvalidRecordError,
            r"partitions\[1\]=5 of topic 'orders' is outside 0..1",
        ),
        (
            {"partitions": array.array("i", [0, 0, -2])},
            InvalidRecordError,
            r"partitions\[2\]=-2 of topic 'orders' is outside",
        ),
        ({"partition": 2}, InvalidRecordError, "partition=2 of topic 'orders' is outside 0..1"),
        ({"partition": -2}, InvalidRecordError, "partition=-2 of topic 'orders' is outside 0..1"),
        (
            {"key": Column.from_list([b"k", b"k" * 3000, b"k"])},
            RecordTooLargeError,
            r"row 1: record of up to 30\d\d bytes .* exceeds 2000 bytes",
        ),
    ],
)
def test_wrong_block_is_refused_whole(options, error, message):
    engine = Engine(leaders=[1, 1], max_record_bytes=2000)
    engine.append(b"here before")
    before = snapshot(engine)
    with pytest.raises(error, match=message):
        block(engine, [b"a", b"b", b"c"], **options)
    assert snapshot(engine) == before


def test_offsets_changed_while_the_block_waits_send_no_foreign_memory():
    engine = Engine(pool_bytes=4096, batch_size=1024)
    offsets = np.arange(0, 100 * 101, 100, dtype=np.int32)
    made = block(engine, Column.from_offsets(offsets, b"x" * 10_000))
    assert not made.run(engine.now_ms)
    offsets[:] = np.iinfo(np.int32).max
    values = []
    while made.rows_left:
        for request in engine.take_all():
            values += [record.value for batch in batches_of(request) for record in decode_batch(batch).records]
            succeed(request)
        made.run(engine.now_ms)
    assert {value for value in values if value} == {b"x" * 100}


def delivered_rows(engine, column, partitions=None):
    """The values of the block's rows in row order."""
    made = block(engine, column, partitions=partitions)
    assert made.run(engine.now_ms)
    queues = {partition: iter(values) for partition, values in queued_values(engine).items()}
    return [next(queues[partition]) for partition in memoryview(made.partition_of_rows())]


@pytest.mark.parametrize("placed", [False, True], ids=["sticky", "placed"])
@pytest.mark.parametrize("kind", ["i4", "i8"])
@pytest.mark.parametrize("end", [-1, 700 * 3 + 1, 2**31 - 1, -(2**31), 3 * 300 - 4, 3 * 300 + 4])
def test_row_whose_offset_changed_after_the_check_is_null_and_no_other(end, kind, placed):
    engine = Engine(leaders=[1] * 3)
    data = b"".join(b"%03d" % i for i in range(700))
    offsets = np.arange(0, 701 * 3, 3, dtype=kind)
    column = Column.from_offsets(offsets, data)
    partitions = np.arange(700, dtype=np.int32) % 3 if placed else None
    offsets[300] = end
    whole: list[bytes | None] = [data[i : i + 3] for i in range(0, 2100, 3)]
    # A row that became shorter is still within the data; row 299 or 300 is no longer.
    expected = {row: data[offsets[row] : offsets[row + 1]] for row in (299, 300)}
    for row, value in expected.items():
        size = int(offsets[row + 1]) - int(offsets[row])
        fits = 0 <= size <= 3 and offsets[row] >= 0 and offsets[row + 1] <= len(data)
        whole[row] = value if fits else None
    found = delivered_rows(engine, column, partitions)
    assert found == whole
    assert None in found


@pytest.mark.parametrize("placed", [False, True], ids=["sticky", "placed"])
def test_rows_of_every_layout_are_read_in_pieces(placed):
    count = 1000
    rows = [None if i % 5 == 0 else b"%d" % i * (i % 7) for i in range(count)]
    short = [None if row is None else row[:12] for row in rows]
    views = b"".join(struct.pack("=i", len(row or b"")) + (row or b"").ljust(12, b"\0") for row in short)
    mask = np.array([row is not None for row in rows])
    data = b"".join(row or b"" for row in rows)
    offsets = np.cumsum([0] + [len(row or b"") for row in rows])
    fixed = [b"%04d" % i if mask[i] else None for i in range(count)]
    partitions = np.arange(count, dtype=np.int32) % 3 if placed else None
    for column, expected in (
        (Column.from_list(rows), rows),
        (Column.from_offsets(offsets.astype("i4"), data, mask), rows),
        (Column.from_offsets(offsets, data, mask), rows),
        (Column.from_views(views, [], mask), short),
        (Column.from_fixed(b"".join(b"%04d" % i for i in range(count)), 4, mask), fixed),
    ):
        assert delivered_rows(Engine(leaders=[1] * 3), column, partitions) == expected


@pytest.mark.parametrize(
    "numbers",
    [
        [1, 0, 1],
        (1, 0, 1),
        array.array("q", [1, 0, 1]),
        np.array([1, 0, 1]),
        np.array([1, 0, 1], "u1"),
        np.array([1, 9, 0, 9, 1, 9])[::2],
        np.array([1, 0, 1], "i4"),
    ],
    ids=repr,
)
def test_partitions_and_timestamps_may_be_any_integers(numbers):
    engine = Engine(leaders=[1, 1])
    made = block(engine, [b"a", b"b", b"c"], partitions=numbers, timestamps=numbers)
    assert made.run(engine.now_ms)
    assert list(memoryview(made.partition_of_rows())) == [1, 0, 1]


def test_block_without_columns_of_its_own_cannot_be_larger_than_memory():
    engine = Engine()
    with pytest.raises((InvalidRecordError, MemoryError)):
        Block(engine.accumulator, engine.accumulator.topics[TOPIC], Column.nulls(), row_count=2**62 - 1)


@pytest.mark.parametrize("value", [Column.nulls(), Column.constant(b"x")])
def test_rows_without_a_column_of_their_own_are_bounded(value):
    engine = Engine()
    with pytest.raises(InvalidRecordError, match=r"row_count=16777217: a block without a column .* at most 16777216"):
        Block(engine.accumulator, engine.accumulator.topics[TOPIC], value, row_count=2**24 + 1)


def test_closed_accumulator_takes_no_block():
    engine = Engine()
    made = block(engine, [b"a"])
    engine.accumulator.close()
    before = snapshot(engine)
    with pytest.raises(ProducerClosedError):
        made.run(engine.now_ms)
    assert (snapshot(engine), made.rows_appended) == (before, 0)


def test_partition_buffer_is_read_only():
    made = block(Engine(), [b"a"])
    with pytest.raises(TypeError):
        memoryview(made.partition_of_rows())[0] = 1


def test_partition_buffer_keeps_the_block_alive():
    engine = Engine()
    made = block(engine, [b"a"] * 1000, partition=0)
    view = memoryview(made.partition_of_rows())
    del made
    gc.collect()
    assert set(view) == {0}


@pytest.mark.parametrize("size", [100, 1_000, 10_000])
def test_batches_of_several_slabs_have_the_sum_of_their_records(size):
    engine = Engine(leaders=[1, 1], batch_size=1 << 18, max_request_bytes=1 << 22)
    random = Random(size)
    sent: list[list[Any]] = [[], []]
    while engine.pool.in_use < 700_000:
        row_count = random.randrange(1, 75_000 // size + 2)
        rows = [random.randbytes(random.randrange(size)) for _ in range(row_count)]
        placed = array.array("i", [random.randrange(2) for _ in rows])
        assert block(engine, rows, partitions=placed).run(engine.now_ms)
        for row, partition in zip(rows, placed, strict=True):
            sent[partition].append(row)
        sent[0].append(b"alone")
        engine.append(b"alone")
    assert queued_values(engine) == dict(enumerate(sent))


def test_a_batch_that_is_sealed_again_has_the_right_sum():
    engine = Engine(batch_size=1 << 18, is_idempotent=True)
    engine.introduce()
    rows = [bytes([i % 251]) * 1_000 for i in range(200)]
    assert block(engine, rows).run(engine.now_ms)
    (ref,) = engine.take().refs()
    assert ref.forget_sequence()
    ref.requeue(engine.now_ms, 0)
    engine.drain.set_producer(4000, 2)
    assert queued_values(engine) == {0: rows}


def test_a_record_that_finds_no_memory_leaves_its_batch_with_the_right_sum():
    engine = Engine(pool_bytes=1 << 16, batch_size=1 << 18)
    sent = [b"first"]
    engine.append(b"first")
    for size in (7_000, 100):  # when a large one does not fit, the slab is summed to its end; then small ones follow
        while engine.try_append(bytes([size % 251]) * size) is not None:
            sent.append(bytes([size % 251]) * size)
    assert len(sent) > 20
    assert queued_values(engine) == {0: sent}


def test_abandoned_block_refuses_to_look_for_its_results():
    """In a forked child, where a partition's lock may be held for ever."""
    engine = Engine(leaders=[1])
    made = block(engine, [b"a"])
    assert made.run(engine.now_ms)
    engine.accumulator.abandon()
    with pytest.raises(ForkedProducerError, match="sent by the parent process"):
        _ = made.row_runs


def test_rows_without_key_leave_a_node_that_may_hold_no_more():
    engine = Engine(leaders=[1, 2], batch_size=1 << 20)
    engine.pool.set_limit(1, 4096)
    made = block(engine, [b"x" * 1000] * 100)
    assert made.run(engine.now_ms)
    assert np.frombuffer(memoryview(made.partition_of_rows()), "i4").tolist().count(1) > 95
    assert {node: held for node, held, _ in engine.pool.shares()}[1] <= 4096
