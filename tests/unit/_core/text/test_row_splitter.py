"""Cutting text into rows, finding fields; each against the same thing written in Python."""

from __future__ import annotations

import json
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.row_splitter import (
    FIELD_BROKEN,
    FIELD_FOUND,
    FIELD_MISSING,
    find_fields,
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


def test_an_empty_separator_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="separator"):
        split_keys(b"a", b"", b"")


@pytest.mark.parametrize(("length", "offset"), [(20, 90), (20, -1), (-1, 0), (2**31 - 1, 0), (20, 2**31 - 1)])
def test_views_that_reach_outside_of_the_text_are_refused(length, offset):
    views = struct.pack("=iiii", 3, 0, 0, 0) + struct.pack("=iiii", length, 0, 0, offset)
    with pytest.raises(InvalidRecordError, match="view 1 reaches outside of the 100 bytes of text"):
        find_fields(b"x" * 100, views, b"a")
    with pytest.raises(InvalidRecordError, match="view 1 reaches outside of the 100 bytes of text"):
        split_keys(b"x" * 100, views, b",")
