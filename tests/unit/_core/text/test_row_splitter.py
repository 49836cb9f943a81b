"""Cutting text into rows, finding fields; each against the same thing written in Python."""

from __future__ import annotations

import json
import re
import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.row_splitter import (
    FIELD_BROKEN,
    FIELD_FOUND,
    FIELD_MISSING,
    find_fields,
    split_documents,
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
    first, count, used, is_end, wrong = split_elements(text[:place])
    assert wrong == -1
    found = rows(first, text[:place])
    if not is_end:
        second, _, _, is_end, _ = split_elements(text[used:], not count)
        found += rows(second, text[used:])
    assert is_end
    assert [json.loads((row or b"").decode("utf-8", "surrogatepass")) for row in found] == values


VALID: Final = (
    *("0", "-0", "-0.0", "1e5", "1E+5", "1.5e-3", "12345678901234567890", "true", "false", "null", '""', "[]", "{}"),
    *('"\\u00e9\\ud800"', r'"\"\\\/\b\f\n\r\t"', '"\x7f\u2028é"', '{"a":{"a":[[],[{}]]},"a":0}', " [ 1 , 2 ] "),
    "[" * 1000 + "]" * 1000,
)
INVALID: Final = (
    *(",", "1,", ",1", "1,,2", "1 2", "1 true", '"a" "b"', '"a"1', "{}{}", "[][]", "{} 1", "1]2", "1;2", "1\v"),
    *("00", "01", "-", "-01", "+1", ".5", "1.", "1.e5", "1e", "1e+", "1.5.5", "0x1", "1a", "0e+-1", "1_000", "--1"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "nan", "tru", "truer", "True", "nul", "nulll", "falsy", "undefined"),
    *("'a'", '"a', '"\\', '"\\a"', '"\\u12"', '"\\u12g4"', '"\\x41"', '"\t"', '"a\nb"', '"\0"', "a", "\\", "é"),
    *("[", "]", "{", "}", "[}", "{]", "[1,]", "[,]", "[,1]", "[1,,2]", "[1 2]", "[1:2]", '["a":1]', "[[]", "[]]"),
    *('{"a"}', '{"a":}', '{"a" 1}', '{"a",1}', '{"a":1,}', '{,"a":1}', '{"a":1,,"b":2}', '{"a":1 "b":2}', "{a:1}"),
    *("{1:1}", "{null:1}", '{"a":1:2}', '{"a":b}', '{"a":1}}', "{[]:1}", '{"a"::1}', "// no", "/* no */ 1", "1 # no"),
    "\ufeff1",
)


@pytest.mark.parametrize("text", VALID)
def test_a_value_of_json_is_cut_as_it_is_written(text: str) -> None:
    data = text.encode()
    views, _, used, is_end, wrong = split_elements(data + b",1]")
    assert (rows(views, data + b",1]"), used, is_end, wrong) == ([data.strip(), b"1"], len(data) + 3, True, -1)
    for kind, end in ((b'{"a":%s}', b""), (b"[%s]", b" ")):
        document = kind % data
        views, _, used, wrong = split_documents(document * 2 + end)
        assert (rows(views, document * 2 + end), used, wrong) == (
            [document] * 2,
            2 * len(document + end) - len(end),
            -1,
        )


@pytest.mark.parametrize("text", INVALID)
def test_what_is_no_json_is_cut_into_no_rows(text: str) -> None:
    data = text.encode() + b"]"
    _, _, used, is_end, _ = split_elements(data)
    assert not is_end or used < len(data), "the array ended, and was right"
    with pytest.raises(ValueError):
        json.loads(b"[" + data, parse_constant=float_of_no_json)
    _, _, used, wrong = split_documents(b"[" + data)
    assert wrong >= 0 or used < len(data) + 1


def float_of_no_json(text: str) -> float:
    raise ValueError(text)


@given(st.binary(max_size=30).map(lambda data: re.sub(rb"[^0-9eE+.,:\[\]{}\"\\trufalsn -]", b"1", data)))
def test_an_array_is_whole_where_json_reads_it(text: bytes) -> None:
    views, _, used, is_end, _ = split_elements(text + b"]")
    try:
        found = json.loads(b"[" + text + b"]")
    except ValueError:
        assert not is_end or used < len(text) + 1
    else:
        assert is_end
        assert [json.loads(row or b"") for row in rows(views, text + b"]")] == found


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
