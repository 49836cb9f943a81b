"""Tables of pyarrow over memory that changes: rows that reach beyond their buffers are refused, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkaprod.errors import InvalidRecordError
from kafkaprod.tables.sources import read_batches

FAR = 1 << 30


def strings(kind: Any, width: Any) -> tuple[Any, Any]:
    """An array of two strings, and the memory of its offsets."""
    offsets = np.array([0, 2, 4], width)
    return pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcd")]), offsets


def listed() -> tuple[Any, Any]:
    items, offsets = strings(pa.string(), np.int32)
    return pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items), offsets


def structured() -> tuple[Any, Any]:
    values, offsets = strings(pa.string(), np.int32)
    return pa.StructArray.from_arrays([values], ["s"]), offsets


def mapped() -> tuple[Any, Any]:
    values, offsets = strings(pa.string(), np.int32)
    return pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l"]), values), offsets


def dictionary() -> tuple[Any, Any]:
    values, offsets = strings(pa.string(), np.int32)
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), values), offsets


ARRAYS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "string": lambda: strings(pa.string(), np.int32),
    "large_string": lambda: strings(pa.large_string(), np.int64),
    "binary": lambda: strings(pa.binary(), np.int32),
    "list": listed,
    "struct": structured,
    "map": mapped,
    "dictionary": dictionary,
}
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "table": lambda array: pa.table({"v": array}),
    "batch": lambda array: pa.record_batch([array], names=["v"]),
    "chunks": lambda array: pa.chunked_array([array]),
    "array": lambda array: array,
}


CASES = [  # a struct that is alone has a table's rows
    (kind, holder) for kind in ARRAYS for holder in HOLDERS if kind != "struct" or holder in ("table", "batch")
]


@pytest.mark.parametrize(("kind", "holder"), CASES)
def test_a_last_offset_beyond_the_data_is_refused(kind: str, holder: str) -> None:
    """The interface does not say how long the data is: a record would hold the bytes of whatever lies behind it."""
    array, offsets = ARRAYS[kind]()
    data = HOLDERS[holder](array)  # before the change: pyarrow looks at the last offset once, when a table is made
    for value, is_right in ((4, True), (5, False), (FAR, False)):
        offsets[-1] = value
        (batch,) = read_batches(data)
        if is_right:
            batch.to_pylist([0], 0, 2)
        else:
            with pytest.raises(InvalidRecordError, match=f"buffer 2 has 4 bytes, but its rows reach to byte {value}"):
                batch.to_pylist([0], 0, 2)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([], pa.string()),
        pa.array([None, None], pa.string()),
        pa.array(["", None, "x" * 20]).slice(1),
        pa.array([True, None] * 9).slice(3, 9),
        pa.array([[1], [], None, [2, 3]]).slice(1, 2),
        pa.array(["a", "b", "a", None]).dictionary_encode().slice(2),
        pa.array(["x" * 20, None, "y"], pa.string_view()).slice(1),
        pa.array([{"a": "x", "b": None}, None]),
        pa.array([b"1234", None], pa.binary(4)),
        pa.nulls(3),
        pa.array([1, None, 3], pa.int64()).slice(2),
    ],
    ids=lambda array: str(array.type),
)
def test_whole_and_sliced_arrays_are_read(array: Any) -> None:
    batches = read_batches(pa.table({"v": array, "w": array}))
    rows = [row for batch in batches for row in batch.to_pylist([0, 1], 0, batch.row_count)]
    assert rows == [{"v": value, "w": value} for value in array.to_pylist()]


def test_blocks_of_ray_and_batches_of_daft_are_read_one_after_another() -> None:
    """Their Arrow streams would hold every row; the packages themselves run in tests/foreign/frameworks.py."""
    given: list[dict[str, Any]] = []
    read = 0

    def parts(_: object, **options: Any) -> Iterator[Any]:
        nonlocal read
        given.append(options)
        for number in range(3):
            read += 1
            yield pa.table({"v": [f"{number}"]})

    class Frames:
        def __arrow_c_stream__(self, schema: object = None) -> object:
            raise AssertionError("it would hold every row")

    ray = type("Dataset", (Frames,), {"__module__": "ray.data.dataset", "iter_batches": parts})
    daft = type("DataFrame", (Frames,), {"__module__": "daft.dataframe.dataframe", "to_arrow_iter": parts})
    for kind in (ray, daft):
        read = 0
        batches = read_batches(kind())
        assert next(batches).to_pylist([0], 0, 1) == [{"v": "0"}]
        assert read == 1
        assert [batch.to_pylist([0], 0, 1) for batch in batches] == [[{"v": "1"}], [{"v": "2"}]]
    assert given == [{"batch_size": None, "batch_format": "pyarrow"}, {}]
