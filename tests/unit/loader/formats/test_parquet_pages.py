"""A page of a Parquet file is refused by its head, before its library takes the memory that the head asks for."""

from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaprod.loader.formats.parquet_pages import WatchedPages, columns_of_words
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of

MIB = 1 << 20


def written(path: Path, column: Any, **options: Any) -> Path:
    pq.write_table(pa.table({"a": column}), path, write_statistics=False, **options)
    return path


def peak_bytes(path: Path) -> int:
    """Read a file in a pool of its own; return the most bytes that it had."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        values_of(path)
    finally:
        pa.set_memory_pool(before)
    return int(pool.max_memory())


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "none"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_of_one_value_that_is_too_long_is_refused(
    tmp_path: Path, codec: str, use_dictionary: bool, version: str
) -> None:
    text = pa.array(["x", "\0" * (20 * MIB)], pa.large_string())
    path = written(
        tmp_path / "a.parquet", text, compression=codec, use_dictionary=use_dictionary, data_page_version=version
    )
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(
            LoadError, match=r"has a value of more than 2,097,152 bytes: a page of it has 20,97.* and \d v"
        ):
            values_of(path, ReadOptions(RowPlan("", max_row_bytes=2 * MIB)))
        assert pool.max_memory() < 8 * MIB + (21 * MIB if codec == "none" else 0)
    finally:
        pa.set_memory_pool(before)


def test_a_page_that_is_packed_far_too_closely_is_refused_though_its_values_are_short(tmp_path: Path) -> None:
    column = pa.array(["x" * 1000] * 3000)
    path = written(tmp_path / "a.parquet", column, compression="zstd", use_dictionary=False, data_page_size=16 * MIB)
    with pytest.raises(
        LoadError, match=r"has a page of 3,01\d,\d\d\d bytes that are [\d,]+ in the file, and 80,000 may"
    ):
        values_of(path, ReadOptions(RowPlan("", max_row_bytes=10_000)))
    assert len(values_of(path)) == 3000


def test_a_page_of_many_values_that_is_large_in_the_file_too_is_read(tmp_path: Path) -> None:
    numbers = pa.array(range(10**15, 10**15 + 10**6 * 7919, 7919))
    path = written(tmp_path / "a.parquet", numbers, compression="none", use_dictionary=False, data_page_size=16 * MIB)
    assert len(values_of(path, ReadOptions(RowPlan("", max_row_bytes=1000)))) == 1_000_000


@pytest.mark.parametrize("step", [1, 7, 100, 5000])
def test_a_head_is_found_wherever_reads_end(tmp_path: Path, step: int) -> None:
    column = pa.array([f"abc{i}" for i in range(3000)] + ["y" * 3000])
    path = written(
        *(tmp_path / "a.parquet", column),
        compression="none",
        use_dictionary=False,
        data_page_size=1000,
        row_group_size=3000,
    )
    metadata = pq.read_metadata(path)
    first, last = (metadata.row_group(group).column(0) for group in range(2))
    pages = WatchedPages(io.BytesIO(path.read_bytes()), "a", 2000)
    pages.watch(metadata, [0, 1])
    for chunk, is_refused in ((first, False), (last, True)):
        pages.seek(chunk.data_page_offset)
        end = chunk.data_page_offset + chunk.total_compressed_size
        with pytest.raises(LoadError, match="has a value of more than 2,000 bytes") if is_refused else nullcontext():
            read_until(pages, end, step)


def read_until(pages: WatchedPages, end: int, step: int) -> None:
    while pages.tell() < end:
        pages.read(min(step, end - pages.tell()))


def test_what_is_no_head_is_left_to_the_library(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", ["a"] * 100)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.dictionary_page_offset : chunk.dictionary_page_offset + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(LoadError, match="is not a whole parquet file, or damaged"):
        values_of(path)


def test_long_texts_that_rows_repeat_are_not_written_out_at_once(tmp_path: Path) -> None:
    words = [str(i) * 20_000 for i in range(8)]
    column = pa.DictionaryArray.from_arrays(pa.array([i % 8 for i in range(3000)], pa.int32()), pa.array(words))
    path = written(tmp_path / "a.parquet", column)
    with pq.ParquetWriter(tmp_path / "b.parquet", pa.schema({"a": pa.string()})) as writer:
        writer.write_table(pa.table({"a": column.cast(pa.string())}))
    for path in (tmp_path / "a.parquet", tmp_path / "b.parquet"):
        assert peak_bytes(path) < 30 * MIB
        assert values_of(path)[7::8] == [b'{"a":"%s"}' % (b"7" * 20_000)] * 375


@pytest.mark.parametrize(
    ("column", "is_found"),
    [
        ([f"kind {i % 9}" for i in range(1000)], True),
        ([f"{i}" * 20 for i in range(100_000)], False),
        ([1, 2, 3], False),
        ([b"x", b"y"], False),
        ([["x"], ["x"]], False),
    ],
)
def test_only_columns_of_few_texts_are_kept_as_they_are(tmp_path: Path, column: list[Any], is_found: bool) -> None:
    path = written(tmp_path / "a.parquet", column)
    assert columns_of_words(pq.ParquetFile(path), {"a"}) == (["a"] if is_found else [])
    assert columns_of_words(pq.ParquetFile(path), {"b"}) == []


@pytest.mark.parametrize("nulls", [False, True])
def test_columns_of_few_texts_have_the_rows_that_they_had(tmp_path: Path, nulls: bool) -> None:
    texts = [None if nulls and i % 3 == 0 else f"kind {i % 9}" for i in range(1000)]
    path = written(tmp_path / "a.parquet", texts, row_group_size=300)
    assert values_of(path) == [b'{"a":null}' if text is None else b'{"a":"%s"}' % text.encode() for text in texts]


def test_a_footer_without_places_of_pages_is_left_to_the_library() -> None:
    column = SimpleNamespace(dictionary_page_offset=None, data_page_offset=0, total_compressed_size=9)
    metadata = SimpleNamespace(num_columns=1, row_group=lambda number: SimpleNamespace(column=lambda place: column))
    pages = WatchedPages(io.BytesIO(b"PAR1" * 9), "rows.parquet", MIB)
    pages.watch(metadata, [0])
    assert pages.read() == b"PAR1" * 9
