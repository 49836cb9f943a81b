"""How Python arguments become a record: every kind of buffer, every wrong type, nothing held after an error."""

import array
import gc
from typing import Any, cast

import pytest

from kafkaprod.errors import InvalidRecordError
from tests.support.core.faces import encode_record, size_bound


class Pair(list):
    """A pair whose value exists only while it is looked at."""

    def __iter__(self):
        return iter(("h", bytes(bytearray(b"fresh" * 40))))


class Emptying(list):
    """A pair that empties the list of headers which it belongs to, once it is looked at."""

    def __init__(self, headers):
        super().__init__(("h", b"1"))
        self.headers = headers

    def __len__(self):
        self.headers.clear()
        return 2

    def __iter__(self):
        self.headers.clear()
        return iter(("h", b"1"))

    def __getitem__(self, index):
        self.headers.clear()
        return ("h", b"1")[index]


def test_pair_may_empty_the_list_it_belongs_to():
    headers: list[Any] = []
    headers.extend(Emptying(headers) for _ in range(50))
    assert encode_record(None, None, headers) == encode_record(None, None, [("h", b"1")] * 50)
    assert headers == []


def test_header_value_of_text_says_that_it_must_be_encoded():
    with pytest.raises(InvalidRecordError, match=r"headers\[0\] value .* not str \(encode it"):
        encode_record(None, None, cast(Any, [("h", "text")]))


def _header_rows():
    yield ("a", b"1")
    yield ("b", None)


@pytest.mark.parametrize(
    "data",
    [b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), memoryview(b"xbytesx")[1:6], array.array("B", b"bytes")],
    ids=lambda data: type(data).__name__,
)
def test_any_contiguous_buffer_is_taken(data):
    assert encode_record(data, data) == encode_record(b"bytes", b"bytes")


def test_subclass_of_bytes_is_taken_as_bytes():
    class Text(bytes):
        pass

    assert encode_record(Text(b"k"), Text(b"v")) == encode_record(b"k", b"v")


def test_empty_buffer_is_empty_and_not_null():
    assert encode_record(bytearray(), memoryview(b"")) == encode_record(b"", b"")


@pytest.mark.parametrize(
    "headers",
    [
        [("a", b"1"), ("b", None)],
        (("a", b"1"), ("b", None)),
        {"a": b"1", "b": None},
        _header_rows(),
        [["a", b"1"], ["b", None]],
    ],
    ids=["list", "tuple", "dict", "generator", "lists"],
)
def test_headers_come_in_many_shapes(headers):
    assert encode_record(None, None, headers) == encode_record(None, None, [("a", b"1"), ("b", None)])


def test_no_headers_are_the_same_as_none():
    assert encode_record(b"k", b"v", None) == encode_record(b"k", b"v", []) == encode_record(b"k", b"v", {})


def test_duplicate_headers_keep_their_order():
    assert encode_record(None, None, [("a", b"1"), ("a", b"2")]) != encode_record(
        None, None, [("a", b"2"), ("a", b"1")]
    )


def test_header_value_that_nobody_else_holds_stays_alive():
    pairs: list[Any] = [Pair(("h", b""))] * 3
    assert encode_record(None, None, pairs) == encode_record(None, None, [("h", b"fresh" * 40)] * 3)


@pytest.mark.parametrize(
    ("key", "value", "headers", "message"),
    [
        ("k", None, None, "key must be bytes-like or None, not str"),
        (1, None, None, "key must be bytes-like or None, not int"),
        (None, 1.5, None, "value must be bytes-like or None, not float"),
        (None, {}, None, "value must be bytes-like or None, not dict"),
        (None, None, 7, r"headers must be \(str, bytes\) pairs, not int"),
        (None, None, [7], r"headers\[0\] must be a \(str, bytes or None\) pair, not 7"),
        (None, None, [("a",)], r"headers\[0\] must be a"),
        (None, None, [("a", b""), ("b", b"", b"")], r"headers\[1\] must be a"),
        (None, None, [(b"a", b"")], r"headers\[0\] key must be str, not bytes"),
        (None, None, [(None, b"")], r"headers\[0\] key must be str, not NoneType"),
        (None, None, [("\ud800", b"")], r"headers\[0\] key .* cannot be written as UTF-8"),
        (None, None, [("a", 5)], r"headers\[0\] value must be bytes-like or None, not int"),
        (memoryview(b"abcd")[::2], None, None, "key must be a contiguous buffer"),
    ],
)
def test_wrong_argument_is_named(key, value, headers, message):
    with pytest.raises(InvalidRecordError, match=message) as caught:
        size_bound(key, value, headers)
    assert isinstance(caught.value, TypeError) == ("UTF-8" not in message)


def test_no_buffer_stays_held_after_an_error():
    data = bytearray(b"held?")
    with pytest.raises(InvalidRecordError):
        encode_record(data, data, cast(Any, [("h", data), ("i", 5)]))
    gc.collect()
    data.extend(b"resizing an exported bytearray would raise")


def test_no_buffer_stays_held_after_success():
    data = bytearray(b"held?")
    encode_record(data, data, [("h", data)])
    data.clear()
