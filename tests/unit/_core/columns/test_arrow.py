"""Arrow import: every layout of every library gives its rows, structs are released once, wrong structs are named."""

import datetime
import gc
import struct

import pyarrow as pa
import pytest

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import InvalidRecordError
from tests.support.core.arrow_structs import HandMade

WORDS = ["a", None, "", "exactly twelve", "a word of more than twelve bytes", None, "é"]
BYTES = [None if word is None else word.encode() for word in WORDS]


def batches(source):
    return list(ArrowStream(source))


def only_batch(source):
    (batch,) = batches(source)
    return batch


def rows(column):
    return [column[i] for i in range(len(column))]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(WORDS, pa.string()),
        pa.array(WORDS, pa.large_string()),
        pa.array(WORDS, pa.string_view()),
        pa.array(BYTES, pa.binary()),
        pa.array(BYTES, pa.large_binary()),
        pa.array(BYTES, pa.binary_view()),
        pa.array(WORDS, pa.string()).dictionary_encode(),
        pa.array(WORDS, pa.string()).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.large_string())),
    ],
    ids=lambda array: str(array.type),
)
def test_every_byte_layout_gives_its_rows_also_sliced(array):
    for first in range(len(array)):
        for table in (pa.table({"x": array}).slice(first, 4), pa.table({"x": array.slice(first, 4)})):
            assert rows(only_batch(table).byte_column(0)) == BYTES[first : first + 4]


def test_fixed_size_and_null_columns_give_their_rows():
    table = pa.table({"f": pa.array([b"ab", None, b"cd"], pa.binary(2)), "n": pa.nulls(3)})
    batch = only_batch(table.slice(1))
    assert rows(batch.byte_column(0)) == [None, b"cd"]
    assert rows(batch.byte_column(1)) == [None, None]


@pytest.mark.parametrize("kind", [pa.ListViewArray, pa.LargeListViewArray])
def test_headers_that_rows_share_are_counted_before_memory_is_taken(kind):
    """Views of lists may overlap, so that few rows have more headers together than any memory holds."""
    pair_count, row_count = 1 << 16, (1 << 15) + 1
    keys, values = pa.array(["k"] * pair_count), pa.array([b""] * pair_count)
    pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
    integers = pa.int32() if kind is pa.ListViewArray else pa.int64()
    headers = kind.from_arrays(pa.array([0] * row_count, integers), pa.array([pair_count] * row_count, integers), pairs)
    with pytest.raises(InvalidRecordError, match="column 'h' has more than 2147483647 headers"):
        only_batch(pa.table({"h": headers})).headers(0)
    assert only_batch(pa.table({"h": headers}).slice(0, 2)).headers(0).row_count == 2


def test_slice_and_take_of_columns_and_headers_give_the_named_rows():
    pairs = [[("a", b"1")], None, [("b", None), ("c", b"")], []]
    batch = only_batch(pa.table({"k": WORDS[:4], "h": pa.array(pairs, pa.map_(pa.string(), pa.binary()))}))
    column = batch.byte_column(0)
    assert rows(column.slice(1, 2)) == BYTES[1:3]
    assert rows(column.slice(1, 3).take(memoryview(struct.pack("=3q", 2, 0, 2)).cast("q"))) == [
        BYTES[3],
        None,
        BYTES[3],
    ]
    headers = batch.headers(1)
    assert headers.slice(1, 3).row_count == 3
    assert headers.take(memoryview(struct.pack("=2q", 2, 0)).cast("q")).row_count == 2
    with pytest.raises(InvalidRecordError, match=r"7 rows from row 2 on are outside the column's 4"):
        column.slice(2, 7)
    with pytest.raises(InvalidRecordError, match="row 7 is outside"):
        column.take(memoryview(struct.pack("=q", 7)).cast("q"))


def test_partitions_come_from_any_integer_column():
    for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()):
        batch = only_batch(pa.table({"p": pa.array([9, 3, None, 0], kind)}).slice(1))
        assert batch.partitions(0).tolist() == [3, -1, 0]
    with pytest.raises(InvalidRecordError, match=r"column 'p': row 1 is partition -2"):
        only_batch(pa.table({"p": [1, -2]})).partitions(0)
    with pytest.raises(InvalidRecordError, match="column 'p' has type double"):
        only_batch(pa.table({"p": [1.0]})).partitions(0)


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (pa.timestamp("s"), 17, 17000),
        (pa.timestamp("ms", tz="UTC"), 17, 17),
        (pa.timestamp("us", tz="Europe/Berlin"), 17999, 17),
        (pa.timestamp("ns"), 17999999, 17),
        (pa.date32(), 2, 172_800_000),
        (pa.date64(), 172_800_000, 172_800_000),
        (pa.int64(), 17, 17),
    ],
    ids=str,
)
def test_timestamps_come_in_ms_and_null_is_now(kind, stored, expected):
    storage = pa.array([stored, None], pa.int32() if kind == pa.date32() else pa.int64())
    batch = only_batch(pa.table({"t": storage.view(kind)}))
    assert batch.timestamps_ms(0, 42).tolist() == [expected, 42]


def test_timestamps_that_kafka_cannot_hold_are_refused_with_their_row():
    for times in (pa.array([1, -1], pa.timestamp("ms")), pa.array([1, 1 << 62], pa.timestamp("s"))):
        with pytest.raises(InvalidRecordError, match="column 't': row 1 is before 1970 or beyond"):
            only_batch(pa.table({"t": times})).timestamps_ms(0, 0)
    with pytest.raises(InvalidRecordError, match="column 't' has type string"):
        only_batch(pa.table({"t": ["1970"]})).timestamps_ms(0, 0)


def test_topics_are_numbered_in_order_of_appearance():
    batch = only_batch(pa.table({"t": ["b", "b", None, "a", "b"]}))
    names, ids = batch.topics(0, "other")
    assert (names, ids.tolist()) == (["b", "other", "a"], [0, 0, 1, 2, 0])
    with pytest.raises(InvalidRecordError, match="column 't': row 2 has a null topic"):
        batch.topics(0)


def test_wrong_column_types_are_named():
    table = pa.table({"i": [1], "d": [datetime.timedelta(1)], "l": [[1]], "h": [[{"key": None, "value": b""}]]})
    batch = only_batch(table)
    with pytest.raises(InvalidRecordError, match="column 'i' has type int64: keys and values must be string"):
        batch.byte_column(0)
    with pytest.raises(InvalidRecordError, match=r"column 'd' has type duration\[us\], which is not supported"):
        batch.byte_column(1)
    with pytest.raises(InvalidRecordError, match="column 'l' has type list<int64>: headers must be"):
        batch.headers(2)
    typed = pa.array(
        [[{"key": None, "value": b""}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    with pytest.raises(InvalidRecordError, match="column 'h': row 0 has a header that is null"):
        only_batch(pa.table({"h": typed})).headers(0)


def test_structs_are_released_once_when_the_last_reader_is_gone():
    made = HandMade("u", 2, [None, struct.pack("=3i", 0, 1, 3), b"abc"])
    stream = ArrowStream(made)
    assert (made.schema_releases, made.array_releases) == (1, 0)
    batch = next(stream)
    column = batch.byte_column(0)
    del stream, batch
    gc.collect()
    assert made.array_releases == 0
    assert rows(column) == [b"a", b"bc"]
    del column
    gc.collect()
    assert (made.schema_releases, made.array_releases) == (1, 1)


def test_a_stream_that_was_consumed_is_refused():
    reader = pa.table({"a": ["x"]}).to_reader()
    capsule = reader.__arrow_c_stream__()

    class Twice:
        def __arrow_c_stream__(self):
            return capsule

    assert len(batches(Twice())) == 1
    with pytest.raises(InvalidRecordError, match="consumed before"):
        ArrowStream(Twice())


def test_an_error_of_the_stream_comes_through_in_its_own_words():
    def broken():
        yield pa.record_batch({"a": ["x"]})
        raise ValueError("the disk is gone")

    stream = ArrowStream(pa.RecordBatchReader.from_batches(pa.schema([("a", pa.string())]), broken()))
    assert next(stream).row_count == 1
    with pytest.raises(InvalidRecordError, match=r"the Arrow stream broke off: .*the disk is gone"):
        next(stream)


OFFSETS = struct.pack("=3i", 0, 1, 3)
HOSTILE = {
    "offsets backwards": (HandMade("u", 2, [None, struct.pack("=3i", 0, 3, 1), b"abc"]), "row 1 has offsets 3..1"),
    "offsets negative": (HandMade("u", 2, [None, struct.pack("=3i", -5, 1, 3), b"abc"]), r"row 0 has offsets -5\.\.1"),
    "long offsets backwards": (HandMade("U", 1, [None, struct.pack("=2q", 4, 1), b"abc"]), r"has offsets 4\.\.1"),
    "no offsets": (HandMade("u", 2, [None, None, b"abc"]), "buffer 1 is missing"),
    "no data": (HandMade("u", 2, [None, OFFSETS, None]), "buffer 2 is missing"),
    "too few buffers": (HandMade("u", 2, [None, OFFSETS]), "has only 2 buffers"),
    "no buffers": (HandMade("u", 2, []), "has 0 buffers"),
    "nulls without bitmap": (HandMade("u", 2, [None, OFFSETS, b"abc"], null_count=1), "no validity bitmap"),
    "negative length": (HandMade("u", -1, [None, OFFSETS, b"abc"]), "length=-1"),
    "negative offset": (HandMade("u", 2, [None, OFFSETS, b"abc"], offset=-1), "offset=-1"),
    "huge offset": (HandMade("u", 2, [None, OFFSETS, b"abc"], offset=1 << 60), "offset=1152921504606846976"),
    "view outside": (
        HandMade("vu", 1, [None, struct.pack("=i4sii", 20, b"abcd", 0, 3), b"x" * 20, struct.pack("=q", 20)]),
        "row 0 has a view of 20 bytes at 3 of buffer 0",
    ),
    "view of no buffer": (
        HandMade("vu", 1, [None, struct.pack("=i4sii", 20, b"abcd", 1, 0), b"x" * 20, struct.pack("=q", 20)]),
        "outside the 1 buffers",
    ),
    "view without sizes": (HandMade("vu", 1, [None, bytes(16)]), "a view has 2 buffers"),
    "index outside": (
        HandMade("i", 1, [None, struct.pack("=i", 7)], dictionary=HandMade("u", 2, [None, OFFSETS, b"abc"])),
        "row 0 has index 7, outside the 2 values",
    ),
    "list outside": (
        HandMade("+l", 1, [None, struct.pack("=2i", 0, 9)], [HandMade("i", 2, [None, bytes(8)])]),
        r"has the range 0\.\.9, which runs backwards or past the 2 items",
    ),
    "list without child": (
        HandMade("+l", 1, [None, bytes(8)], [HandMade("i", 0, [None, None])], n_children=0),
        "children",
    ),
    "view list overflow": (
        HandMade(
            "+vL",
            1,
            [None, struct.pack("=q", 1), struct.pack("=q", (1 << 63) - 1)],
            [HandMade("i", 2, [None, bytes(8)])],
        ),
        "has the range",
    ),
    "fixed list outside": (HandMade("+w:3", 1, [None], [HandMade("i", 2, [None, bytes(8)])]), r"the range 0\.\.3"),
}


def test_structs_that_share_their_children_are_refused_before_they_are_all_read():
    made = HandMade("i", 1, [None, bytes(4)])
    for _ in range(40):
        made = HandMade("+s", 1, [None], [made, made])
    with pytest.raises(InvalidRecordError, match="has more than 131072 fields, nested ones included"):
        only_batch(made)


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
def test_a_struct_that_lies_is_refused_with_the_column(made):
    source, message = made
    with pytest.raises(InvalidRecordError, match=message):
        JsonEncoder(only_batch(source), [0])
    assert (source.schema_releases, source.array_releases) == (1, 1)


INDICES = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("c", INDICES)]),
        pa.struct([("b", pa.struct([("c", INDICES)]))]),
        pa.struct([("b", pa.struct([pa.field("c", INDICES, nullable=False)]))]),
    ],
    ids=str,
)
def test_rows_that_a_null_struct_hides_need_no_place(kind):
    """pyarrow writes index 0 there, also into a dictionary without values."""
    wanted = [None, None, None, None]
    array = pa.array(wanted, kind)
    assert only_batch(pa.table({"a": array})).to_pylist([0], 0, 4) == [{"a": None}] * 4
    assert only_batch(pa.table({"a": array.slice(1)})).to_pylist([0], 0, 3) == [{"a": None}] * 3


VIEW_OUTSIDE = struct.pack("=i4sii", 20, b"abcd", 7, 0)
VIEW_INSIDE = struct.pack("=i12s", 2, b"ab")


def test_a_view_that_a_null_struct_hides_may_be_anything():
    def made(validity):
        views = HandMade("vu", 2, [None, VIEW_OUTSIDE + VIEW_INSIDE, struct.pack("=q", 0)], name="c")
        column = HandMade("+s", 2, [validity], [views], null_count=-1)
        return HandMade("+s", 2, [None], [column])

    assert only_batch(made(b"\2")).to_pylist([0], 0, 2) == [{"column": None}, {"column": {"c": "ab"}}]
    for validity in (b"\1", b"\3"):
        with pytest.raises(InvalidRecordError, match="row 0 has a view of 20 bytes"):
            only_batch(made(validity)).to_pylist([0], 0, 2)


def test_a_struct_whose_child_is_too_short_is_refused():
    child = HandMade("u", 1, [None, struct.pack("=2i", 0, 1), b"a"], name="x")
    with pytest.raises(InvalidRecordError, match="column 'x' has 1 rows, but its parent reads up to row 3"):
        only_batch(HandMade("+s", 3, [None], [child])).byte_column(0)


def test_schemas_that_break_the_specification_are_refused():
    for text, message in (("w:x", "'x' where"), ("d:1", "not one of the specification's"), ("+w:-1", "'-1' where")):
        with pytest.raises(InvalidRecordError, match=message):
            ArrowStream(HandMade(text, 0, [None, None], [HandMade("i", 0, [None, None])] if text[0] == "+" else []))
    with pytest.raises(InvalidRecordError, match="a list has 0 children"):
        ArrowStream(HandMade("+l", 0, [None, None]))


def test_misaligned_buffers_are_read_right():
    import numpy as np

    raw = bytearray(1 + 3 * 8)
    np.frombuffer(raw, dtype="<i8", offset=1)[:] = [5, -6, 7]
    array = pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(raw).slice(1)])
    column = JsonEncoder(only_batch(array), [0]).encode(0, 100)
    assert rows(column) == [b'{"":5}', b'{"":-6}', b'{"":7}']


def test_objects_without_the_interface_are_refused():
    with pytest.raises(InvalidRecordError, match="list has neither __arrow_c_stream__ nor"):
        ArrowStream([1])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (("x", "l", 10, [None, b"12345678"]), "buffer 1 has 8 bytes, 10 rows need 80"),
        (("x", "l", 10, [b"1", b"1" * 80]), "buffer 0 has 1 bytes, 10 rows need 2"),
        (("x", "Z", 1, [None, struct.pack("=qq", 0, 9), b"short"]), "buffer 2 has 5 bytes, 1 rows need 9"),
        (("x", "Z", 1, [None, b"", b""]), "buffer 1 has 0 bytes, 1 rows need 16"),
        (("x", "b", 9, [None, b"1"]), "buffer 1 has 1 bytes, 9 rows need 2"),
        (("x", "l", 1, [None]), "needs 2 buffers"),
        (("x", "vu", 1, [None, b"1" * 16]), "is more than plain buffers"),
        (("x", "+s", 1, [None]), "is more than plain buffers"),
        (("x", "l", -1, [None, b""]), "rows of column 'x'=-1 is outside"),
        (("x", "l", 2**62, [None, b""]), "rows of column 'x'=4611686018427387904 is outside"),
    ],
)
def test_plain_buffers_that_are_too_short_are_refused(column, message):
    with pytest.raises(InvalidRecordError, match=message):
        ArrowBatch.from_columns([column])


def test_column_outside_of_the_batch_is_an_index_error():
    batch = only_batch(pa.table({"x": [1], "y": [2]}))
    for index in (-1, 2, 2**40):
        with pytest.raises(IndexError):
            batch.byte_column(index)
    assert isinstance(batch.fields, tuple)
