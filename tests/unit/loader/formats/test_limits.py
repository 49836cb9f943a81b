"""Small inputs that would become large ones are refused, or read in parts; honest ones are loaded."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import limits, table_batches
from kafkaprod.loader.formats.limits import row_sizes, shortages_named
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of

MIB = 1 << 20


def written(path: Path, array: pa.Array) -> Path:
    batch = pa.record_batch([array], ["a"])
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    return path


def repeated_runs(count: int, text: str) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), pa.array([text], pa.large_string()))


def repeated_words(count: int, text: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def list_of_nulls(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))


def views_of_views(count: int) -> pa.Array:
    inner = pa.ListViewArray.from_arrays(
        pa.array([0] * count, pa.int32()), pa.array([count] * count, pa.int32()), pa.nulls(count)
    )
    return pa.ListViewArray.from_arrays(pa.array([0], pa.int32()), pa.array([count], pa.int32()), inner)


@pytest.mark.parametrize("array", [list_of_nulls(2_000_000_000), views_of_views(10_000)])
def test_a_row_of_some_bytes_that_would_be_gigabytes_is_refused(tmp_path: Path, array: pa.Array) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LoadError, match=r"a.arrow: row 1 has more than 16,777,216 bytes: raise --max-row-bytes"):
            values_of(written(tmp_path / "a.arrow", array))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("repeated", [repeated_runs, repeated_words])
def test_a_value_of_many_rows_is_written_out_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated: type[pa.Array]
) -> None:
    monkeypatch.setattr(table_batches, "BATCH_BYTES", 10_000)
    path = written(tmp_path / "a.arrow", repeated(1000, "x" * 100))
    parts: list[int] = []
    table_block = table_batches.table_block

    def counted(*arguments: object, **more: object) -> object:
        parts.append(arguments[2].num_rows)  # type: ignore[attr-defined]
        return table_block(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(table_batches, "table_block", counted)
    assert values_of(path) == [b'{"a":"%s"}' % (b"x" * 100)] * 1000
    assert max(parts) <= 100
    assert len(parts) < 15


def views_of_one_text(count: int, size: int) -> pa.Array:
    view = size.to_bytes(4, "little") + b"xxxx" + bytes(8)
    buffers = [None, pa.py_buffer(view * count), pa.py_buffer(b"x" * size)]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


def test_views_of_one_long_text_are_not_validated_before_the_first_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VIEWED_BYTES", 10_000)
    parts = list(limits.parts_of_views(pa.record_batch([views_of_one_text(1000, 3000)], ["a"]), "a"))
    assert [part.num_rows for part in parts] == [3] * 333 + [1]
    path = written(tmp_path / "a.arrow", views_of_one_text(100, 200_000))
    with pytest.raises(LoadError, match="row 1 has more than 100,000 bytes"):
        values_of(path, ReadOptions(RowPlan("", max_row_bytes=100_000)))
    assert values_of(written(tmp_path / "b.arrow", views_of_one_text(10, 3000))) == [b'{"a":"%s"}' % (b"x" * 3000)] * 10


def test_views_of_one_text_inside_of_lists_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_VIEWED_BYTES", 100_000)
    views = views_of_one_text(1000, 3000)
    inner = [
        pa.ListArray.from_arrays(pa.array([0, 1000], pa.int32()), views),
        pa.StructArray.from_arrays([views], ["x"]),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), views),
    ]
    for array in inner:
        with pytest.raises(LoadError, match="has views of 3,000,000 bytes inside of a batch's lists or structs"):
            values_of(written(tmp_path / "a.arrow", array))


def test_rows_of_nulls_are_looked_at_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_batches, "MOST_ROWS", 100)
    assert values_of(written(tmp_path / "a.arrow", pa.nulls(250))) == [b'{"a":null}'] * 250
    options = ReadOptions(RowPlan(""))
    nulls = pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])
    (source,) = find_sources([str(written(tmp_path / "b.arrow", nulls))])
    assert next(read_rows(source, options)).row_count == 100


def test_rows_before_one_that_is_too_long_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", pa.array(["x", "y" * 50, "z" * 200]))
    with pytest.raises(LoadError, match="row 3 has more than 100 bytes"):
        values_of(path, ReadOptions(RowPlan("", max_row_bytes=100)))


def test_the_size_of_a_row_is_about_that_of_its_values() -> None:
    columns = [
        pa.array([[1, 2], None, [3]]),
        pa.array([{"a": "x"}, None, {"a": "y" * 500}]),
        pa.array([[("k", 1)], None, [("k" * 700, 2)]], pa.map_(pa.string(), pa.int8())),
        pa.array([1.5, 2, None]),
        pa.array(["a", None, "b" * 900]),
        pa.array([True, False, None]),
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([b"x", None, b"c" * 300], pa.binary_view()),
        pa.array(["x", None, "d" * 400], pa.string_view()),
        pa.array(["x", None, "x"]).dictionary_encode(),
        pa.array(["x", None, "e" * 600], pa.large_string()),
        pa.nulls(3),
        pa.array([b"1234567890123456"] * 3, pa.uuid()),
    ]
    batch = pa.record_batch(columns, [str(i) for i in range(len(columns))])
    sizes = row_sizes(batch)
    long = 500 + 700 + 900 + 300 + 400 + 600
    assert sizes[:2].max() < 200
    assert long < sizes[2] < long + 200
    assert row_sizes(batch.slice(1)).tolist() == pytest.approx(sizes[1:].tolist(), abs=8)
    assert row_sizes(pa.record_batch([pa.array([], pa.string())], ["a"])).tolist() == []
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["a", "b" * 50]))
    assert (row_sizes(pa.record_batch([runs.slice(1, 3)], ["a"])) > 40).tolist() == [False, True, True]


def test_a_file_that_must_be_read_from_its_end_may_not_become_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEAST_CONTENT_BYTES", 4 * MIB)
    path = tmp_path / "a.arrow.zst"
    path.write_bytes(zstandard.compress(b"ARROW1\0\0" + bytes(8 * MIB)))
    with pytest.raises(LoadError, match=r"has more than 4,194,304 bytes when it is decompressed"):
        values_of(path)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "a.orc needs more memory than there is: none was left"),
        (pa.ArrowMemoryError("malloc of 9 failed"), "needs more memory than there is: malloc of 9 failed"),
        (RecursionError("too deep"), "a.orc is nested too deeply: too deep"),
    ],
)
def test_an_error_of_memory_or_depth_has_a_sentence(error: Exception, message: str) -> None:
    with pytest.raises(LoadError, match=message), shortages_named("a.orc"):
        raise error
