"""A Parquet footer that contradicts itself is refused, and any that a writer makes is not."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.loader.formats.parquet_footer import check_parquet_footer
from kafkaprod.loader.opening.errors import LoadError
from tests.support.loader.reading import values_of

ROWS = 30
TABLE = pa.table({"id": list(range(ROWS)), "name": [f"name {i}" for i in range(ROWS)]})
EVERY_TYPE = pa.table(
    {
        "unsigned": pa.array([1], pa.uint8()),
        "small": pa.array([1], pa.int16()),
        "half": pa.array([1.5], pa.float16()),
        "text": pa.array(["a"]).dictionary_encode(),
        "decimal": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        "day": [date(2026, 1, 1)],
        "time": [time(1, 2, 3)],
        "nanoseconds": pa.array([1], pa.time64("ns")),
        "local": [datetime(2026, 1, 1)],
        "instant": pa.array([1], pa.timestamp("ms", "UTC")),
        "instant ns": pa.array([1000], pa.timestamp("ns")),
        "duration": pa.array([1], pa.duration("s")),
        "fixed": pa.array([b"abcd"], pa.binary(4)),
        "nulls": pa.nulls(1),
        "list": [[1, 2]],
        "struct": [{"x": 1, "y": ["a"], "z": {"deep": True}}],
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
    }
)


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10, **options)
    return sink.getvalue()


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int(struct.unpack("<i", data[-8:-4])[0])


@pytest.mark.parametrize("table", [TABLE, EVERY_TYPE, TABLE.slice(0, 0), pa.table({})])
@pytest.mark.parametrize(
    "options",
    [{}, {"version": "1.0"}, {"data_page_version": "2.0"}, {"write_page_index": True}, {"store_schema": False}],
)
def test_a_footer_that_pyarrow_wrote_is_accepted(table: pa.Table, options: dict[str, Any]) -> None:
    stream = io.BytesIO(written(table, **options))
    check_parquet_footer(stream, "a.parquet")
    assert stream.tell() == 0


def test_a_footer_that_polars_or_duckdb_wrote_is_accepted() -> None:
    import polars

    sink = io.BytesIO()
    polars.DataFrame(EVERY_TYPE.drop_columns(["map", "half", "fixed", "nulls"])).write_parquet(sink)
    check_parquet_footer(sink, "a.parquet")


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    place = data.index(old, footer_start(data))
    return data[:place] + new + data[place + len(old) :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: changed(data, b"\x04name", b"\x04namm"), "column 'namm' of its schema is 'name' in row group 0"),
        (lambda data: changed(data, b"\x16\x3c\x19", b"\x16\x38\x19"), "its footer has 28 rows, and row groups of 30"),
        (
            lambda data: changed(data, b"\x00\x15\x04%\x02", b"\x00\x15\x02%\x02"),
            "'id' has another type in row group 0",
        ),
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(damage: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(LoadError, match=rf"a\.parquet is damaged: .*{message}"):
        check_parquet_footer(io.BytesIO(damage(written(TABLE))), "a.parquet")


def test_every_changed_bit_of_a_column_name_and_of_a_count_of_rows_is_refused() -> None:
    data = written(TABLE)
    name = data.index(b"\x04name", footer_start(data)) + 1
    count = data.index(b"\x16\x3c\x19", footer_start(data)) + 1
    for place in (*range(name, name + 4), count):
        for bit in range(7):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(LoadError):
                check_parquet_footer(io.BytesIO(damaged), "a.parquet")


def test_a_footer_without_its_number_of_rows_is_read_by_its_row_groups(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(changed(written(TABLE), b"\x16\x3c\x19", b"\x16\x00\x19"))
    assert len(values_of(tmp_path / "a.parquet")) == 30


def is_refused(data: bytes) -> bool:
    try:
        check_parquet_footer(io.BytesIO(data), "a.parquet")
    except LoadError:
        return True
    return False


@given(st.binary(max_size=200))
def test_any_bytes_are_a_refusal_or_left_to_the_library(footer: bytes) -> None:
    is_refused(footer)
    is_refused(footer + struct.pack("<I", len(footer)) + b"PAR1")


@pytest.mark.parametrize("nested", [b"\x1c", b"\x19\x19", b"\x1b\x01\xbb"])
def test_a_footer_of_endless_depth_is_left_to_the_library(nested: bytes) -> None:
    footer = nested * 20_000
    assert not is_refused(footer + struct.pack("<I", len(footer)) + b"PAR1")


@given(st.data())
def test_a_footer_with_changed_bytes_never_ends_otherwise(data: st.DataObject) -> None:
    damaged = bytearray(written(EVERY_TYPE))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(footer_start(bytes(damaged)), len(damaged) - 9))] = data.draw(st.integers(0, 255))
    is_refused(bytes(damaged))


def number(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


@pytest.mark.parametrize("field", [b"\x29", b"\x39\x1c\x00\x19", b"\x59", b"\x49"])  # schema, another, a group, unknown
def test_a_footer_of_empty_structs_takes_no_memory(field: bytes) -> None:
    count = 900_000
    footer = field + b"\xfc" + number(count) + bytes(count) + b"\0"
    data = footer + struct.pack("<I", len(footer)) + b"PAR1"
    tracemalloc.start()
    try:
        is_refused(data)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()


POISON = pa.table({"s": [f"{i} PAR1PAR1" for i in range(ROWS)]})


@pytest.mark.parametrize("options", [{}, {"compression": "none", "use_dictionary": False}, {"write_page_index": True}])
def test_a_value_with_the_magic_number_twice_is_a_value_as_others(options: dict[str, Any]) -> None:
    assert not is_refused(written(POISON, **options))


@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"data_page_version": "2.0"}])
@pytest.mark.parametrize("table", [TABLE, TABLE.slice(0, 0), POISON])
def test_joined_files_are_refused_by_the_places_in_the_last_footer(table: pa.Table, options: dict[str, Any]) -> None:
    first, second = written(TABLE, **options), written(table, **options)
    for joined in (first + second, second + first, first + first + second):
        with pytest.raises(LoadError, match=r"a\.parquet is several Parquet files that were joined"):
            check_parquet_footer(io.BytesIO(joined), "a.parquet")


def test_a_file_is_not_read_from_end_to_end_to_check_its_footer() -> None:
    data = written(
        pa.table({"x": [random.Random(1).randbytes(1000) for _ in range(1000)]}),
        compression="none",
        write_statistics=False,
    )

    class NotedReads(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            self.count += len(found)
            return found

    stream = NotedReads(data)
    check_parquet_footer(stream, "a.parquet")
    assert stream.count < len(data) // 10


def test_types_of_which_only_the_storage_is_shown_are_found() -> None:
    plain = written(pa.table({"a": [1], "v": ["x"]}), version="2.6", store_schema=False)
    assert check_parquet_footer(io.BytesIO(plain), "a.parquet") == {}
    long = plain[footer_start(plain) : -8]
    place = long.index(b"\x4c\x1c\x00\x00")
    for found, member in (("VARIANT", b"\x0c\x20"), ("number 30 of parquet.thrift", b"\x0c\x3c")):
        footer = long[:place] + b"\x4c" + member + b"\x00\x00" + long[place + 4 :]
        footer = footer.replace(b"\x25\x00\x4c", b"\x6c")  # without the old form
        data = plain[: footer_start(plain)] + footer + struct.pack("<I", len(footer)) + b"PAR1"
        assert check_parquet_footer(io.BytesIO(data), "a.parquet") == {"v": found}
