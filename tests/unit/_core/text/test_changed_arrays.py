"""Arrow arrays that change after they were checked: each value is right, or the rows are refused; no foreign bytes."""

import numpy as np
import pyarrow as pa
import pytest

from kafkaprod._core.columns.arrow import ArrowStream
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import InvalidRecordError

FAR = 1 << 30


def string_array(kind, width):
    offsets = np.array([0, 2, 4], width)
    data = np.frombuffer(b"abcd", np.uint8)
    array = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return array, offsets


def view_array():
    views = np.array(pa.array(["x" * 20, "y" * 20], pa.string_view()).buffers()[1]).view(np.int32).copy()
    data = pa.py_buffer(b"x" * 20 + b"y" * 20)
    array = pa.Array.from_buffers(pa.string_view(), 2, [None, pa.py_buffer(views), data])
    return array, views


def dictionary_array():
    indices = np.array([0, 1], np.int32)
    places = pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(indices)])
    return pa.DictionaryArray.from_arrays(places, pa.array(["ab", "cd"])), indices


def list_array():
    offsets = np.array([0, 1, 2], np.int32)
    items = pa.array([1, 2], pa.int32())
    places = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(pa.int32()), 2, places, children=[items]), offsets


def map_array():
    offsets = np.array([0, 1, 2], np.int32)
    kind = pa.map_(pa.string(), pa.int32())
    items = pa.StructArray.from_arrays([pa.array(["a", "b"]), pa.array([1, 2], pa.int32())], fields=list(entries(kind)))
    return pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(offsets)], children=[items]), offsets


def entries(kind):
    yield pa.field(kind.key_field.name, kind.key_type, nullable=False)
    yield kind.item_field


ARRAYS = {
    "string": lambda: string_array(pa.string(), np.int32),
    "large_string": lambda: string_array(pa.large_string(), np.int64),
    "binary": lambda: string_array(pa.binary(), np.int32),
    "string_view": view_array,
    "dictionary": dictionary_array,
    "list": list_array,
    "map": map_array,
}
WRECKS = {
    "far beyond": lambda memory: memory.fill(FAR),
    "before the data": lambda memory: memory.fill(-1),
    "backwards": lambda memory: memory.__setitem__(slice(None), memory[::-1].copy()),
    "one too many": lambda memory: memory.__setitem__(-1, memory[-1] + 1),
}


def encoders(batch):
    """The rows as JSON, and as Python objects."""
    yield lambda: JsonEncoder(batch, [0]).encode(0, 1 << 20)
    yield lambda: batch.to_pylist([0], 0, batch.row_count)


@pytest.mark.parametrize("wreck", WRECKS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_rows_of_a_changed_array_are_refused(kind, wreck):
    array, memory = ARRAYS[kind]()
    (batch,) = ArrowStream(pa.table({"v": array}))
    for encode in encoders(batch):
        encode()
    WRECKS[wreck](memory)
    for encode in encoders(batch):
        if wreck == "backwards" and kind == "dictionary":
            encode()  # indexes have no order
        else:
            with pytest.raises(InvalidRecordError, match="have changed while rows were read"):
                encode()


@pytest.mark.parametrize("index", [FAR, -1, 2])
def test_a_changed_index_of_a_dictionary_names_no_bytes(index):
    """As a column of bytes: keys, values and topics of a table."""
    array, memory = dictionary_array()
    (batch,) = ArrowStream(pa.table({"v": array}))
    assert batch.byte_column(0).rows(0, 2) == [b"ab", b"cd"]
    memory[1] = index
    assert batch.byte_column(0).rows(0, 2) == [b"ab", None]
