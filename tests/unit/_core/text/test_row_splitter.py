"""Cutting text into rows, finding fields, choosing partitions; each against the same thing written in Python."""

from __future__ import annotations

import json
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.records.murmur2 import partition_of_key
from kafkaprod._core.text.row_splitter import (
    FIELD_BROKEN,
    FIELD_FOUND,
    FIELD_MISSING,
    add_sizes,
    count_partitions,
    find_fields,
    partitions_of_keys,
    partitions_of_runs,
    split_elements,
    split_keys,
    split_lines,
)
from kafkaprod.errors import InvalidRecordError

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def rows(views: bytes | bytearray, text: bytes) -> list[bytes | None]:
    """Views as bytes."""
    column = Column.from_views(views, [text])
    return [column[i] for i in range(len(column))]


@given(st.binary(max_size=300).map(lambda data: re.sub(rb"[^a\n\r]", b"a", data)), st.integers(0, 300))
def test_lines_are_those_of_split_wherever_the_text_is_cut(text: bytes, place: int) -> None:
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    first, _, used = split_lines(text[:place])
    second, count, rest = split_lines(text[used:], is_last=True)
    found = rows(first, text[:place]) + rows(second, text[used:])
    assert found == [line[:-1] if line.endswith(b"\r") and len(line) > 0 else line for line in expected]
    assert count == len(second) // 16
    assert used + rest == len(text)


@given(st.lists(JSON_VALUES, max_size=6), st.sampled_from([None, 1]), st.data())
def test_elements_of_an_array_are_those_that_json_reads(
    values: list[object], indent: int | None, data: st.DataObject
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")[1:]
    place = data.draw(st.integers(0, len(text)))
    first, _, used, is_end = split_elements(text[:place])
    found = rows(first, text[:place])
    if not is_end:
        second, _, _, is_end = split_elements(text[used:])
        found += rows(second, text[used:])
    assert is_end
    assert [json.loads((row or b"").decode("utf-8", "surrogatepass")) for row in found] == values


@given(st.dictionaries(st.sampled_from(["a", "b", "key", "ke", "keyy"]), JSON_VALUES))
def test_a_field_is_what_json_reads_of_the_object(record: dict[str, object]) -> None:
    text = json.dumps(record).encode()
    views, _, _ = split_lines(text, is_last=True)
    found, (status,) = find_fields(text, views, b"key")
    value = record.get("key")
    if value is None:
        assert status == FIELD_MISSING
    elif isinstance(value, str):
        raw = rows(found, text)[0] or b""
        assert json.loads(b'"' + raw + b'"') == value
    else:
        assert status == FIELD_FOUND
        assert json.loads(rows(found, text)[0] or b"") == value


@pytest.mark.parametrize(
    "text", [b"[1]", b"x", b'{"key', b'{"key":', b'{"key":"x', b'{"a":1', b"{1:2}", b'{"a":1]', b'{"key":}']
)
def test_what_is_no_object_is_broken(text: bytes) -> None:
    views, _, _ = split_lines(text, is_last=True)
    assert list(find_fields(text, views, b"key")[1]) == [FIELD_BROKEN]


@given(st.lists(st.binary(max_size=30), min_size=1), st.binary(min_size=1, max_size=2))
def test_keys_are_parted_at_the_first_separator(lines: list[bytes], separator: bytes) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    text = b"".join(line + b"\n" for line in lines)
    views, _, _ = split_lines(text, 10, False)
    keys, values, has_key = split_keys(text, views, separator.replace(b"\n", b"n"))
    parted = [line.partition(separator.replace(b"\n", b"n")) for line in lines]
    assert list(has_key) == [bool(found) for _, found, _ in parted]
    assert rows(values, text) == [value if found else key for key, found, value in parted]
    assert [k for k, h in zip(rows(keys, text), has_key, strict=True) if h] == [k for k, f, _ in parted if f]


@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(1, 50))
def test_partitions_of_keys_are_those_of_the_default_partitioner(keys: list[bytes | None], count: int) -> None:
    partitions = np.full(len(keys), -7, dtype=np.int32)
    partitions_of_keys(Column.from_list(keys), count, partitions.data)
    assert partitions.tolist() == [-7 if key is None else partition_of_key(key, count) for key in keys]


def test_sizes_are_added_and_nulls_have_none() -> None:
    sizes = np.array([1, 1, 1], dtype=np.int64)
    add_sizes(Column.from_list([b"abc", None, b""]), sizes.data)
    assert sizes.tolist() == [4, 1, 1]


def test_wrong_counts_are_refused() -> None:
    short = Column.from_list([b"a"])
    with pytest.raises(InvalidRecordError, match="1 rows for 2 sizes"):
        add_sizes(short, np.zeros(2, dtype=np.int64).data)
    with pytest.raises(InvalidRecordError, match="1 keys for 2 partitions"):
        partitions_of_keys(short, 1, np.zeros(2, dtype=np.int32).data)
    with pytest.raises(InvalidRecordError, match="at least 1"):
        partitions_of_keys(short, 0, np.zeros(1, dtype=np.int32).data)
    with pytest.raises(InvalidRecordError, match="separator"):
        split_keys(b"a", b"", b"")


@given(st.lists(st.integers(0, 1 << 40), max_size=20), st.integers(0, 1000), st.integers(1, 9), st.integers(1, 5))
def test_runs_of_rows_go_to_one_partition_after_the_other(
    numbers: list[int], rows_before: int, run_rows: int, partition_count: int
) -> None:
    found = np.full(len(numbers), -1, dtype=np.int32)
    partitions_of_runs(np.array(numbers, dtype=np.int64).data, rows_before, run_rows, partition_count, found.data)
    assert found.tolist() == [(number + rows_before) // run_rows % partition_count for number in numbers]


def test_runs_without_rows_or_partitions_are_refused() -> None:
    numbers, out = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int32)
    for run_rows, partition_count in ((0, 1), (1, 0)):
        with pytest.raises(InvalidRecordError, match="must be at least 1"):
            partitions_of_runs(numbers.data, 0, run_rows, partition_count, out.data)
    with pytest.raises(InvalidRecordError, match="1 row numbers for 2 partitions"):
        partitions_of_runs(numbers[:1].data, 0, 1, 1, out.data)


def test_partitions_are_counted_and_those_without_a_place_refused() -> None:
    counts = np.array([5, 0, 0], dtype=np.int64)
    count_partitions(np.array([2, 0, 2], dtype=np.int32).data, counts.data)
    assert counts.tolist() == [6, 0, 2]
    for wrong in (-1, 3):
        with pytest.raises(InvalidRecordError, match=r"outside 0\.\.2"):
            count_partitions(np.array([wrong], dtype=np.int32).data, counts.data)


@pytest.mark.parametrize(("length", "offset"), [(20, 90), (20, -1), (-1, 0), (2**31 - 1, 0), (20, 2**31 - 1)])
def test_views_that_reach_outside_of_the_text_are_refused(length, offset):
    views = struct.pack("=iiii", 3, 0, 0, 0) + struct.pack("=iiii", length, 0, 0, offset)
    with pytest.raises(InvalidRecordError, match="view 1 reaches outside of the 100 bytes of text"):
        find_fields(b"x" * 100, views, b"a")
    with pytest.raises(InvalidRecordError, match="view 1 reaches outside of the 100 bytes of text"):
        split_keys(b"x" * 100, views, b",")
