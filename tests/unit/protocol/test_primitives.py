"""The types of the protocol, byte for byte, and what damaged bytes do."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.primitives import LARGE_BUFFER_BYTES, Reader, Writer

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

ENCODINGS: list[tuple[str, Any, str]] = [
    ("int8", -2, "fe"),
    ("int16", -2, "fffe"),
    ("int32", 1, "00000001"),
    ("uuid", ID, "00112233445566778899aabbccddeeff"),
    ("uuid", None, "00" * 16),
    ("uvarint", 0, "00"),
    ("uvarint", 127, "7f"),
    ("uvarint", 128, "8001"),
    ("uvarint", 4294967295, "ffffffff0f"),
    ("string", "tä", "0003 74c3a4"),
    ("string", "", "0000"),
    ("nullable_string", None, "ffff"),
    ("nullable_string", "t", "0001 74"),
    ("compact_string", "t", "02 74"),
    ("compact_string", "", "01"),
    ("compact_nullable_string", None, "00"),
    ("compact_nullable_string", "t", "02 74"),
    ("bytes", b"ab", "00000002 6162"),
    ("nullable_bytes", None, "ffffffff"),
    ("nullable_bytes", b"", "00000000"),
    ("compact_bytes", b"ab", "03 6162"),
    ("compact_nullable_bytes", None, "00"),
    ("compact_nullable_bytes", b"", "01"),
    ("records", None, "ffffffff"),
    ("records", b"ab", "00000002 6162"),
    ("compact_records", None, "00"),
    ("compact_records", b"ab", "03 6162"),
]
IDS = [f"{name}-{value}" for name, value, _ in ENCODINGS]


@pytest.mark.parametrize(("name", "value", "encoded"), ENCODINGS, ids=IDS)
def test_a_value_is_written_as_the_protocol_says(name: str, value: Any, encoded: str) -> None:
    writer = Writer()
    getattr(writer, f"write_{name}")(value)

    assert writer.getvalue().hex() == bytes.fromhex(encoded).hex()


@pytest.mark.parametrize(("name", "value", "encoded"), ENCODINGS, ids=IDS)
def test_a_value_is_read_back_and_nothing_behind_it(name: str, value: Any, encoded: str) -> None:
    reader = Reader(bytes.fromhex(encoded) + b"behind")

    assert getattr(reader, f"read_{name}")() == value
    assert reader.remaining == len(b"behind")


@pytest.mark.parametrize(("name", "value", "encoded"), ENCODINGS, ids=IDS)
def test_a_value_cut_short_is_damage(name: str, value: Any, encoded: str) -> None:
    whole = bytes.fromhex(encoded)
    for size in range(len(whole)):
        with pytest.raises(CorruptDataError, match=f"of {size}$"):
            getattr(Reader(whole[:size]), f"read_{name}")()


@pytest.mark.parametrize(
    ("read", "encoded"),
    [
        (Reader.read_string, "ffff"),
        (Reader.read_string, "fffe"),
        (Reader.read_nullable_string, "8000"),
        (Reader.read_compact_string, "00"),
        (Reader.read_bytes, "ffffffff"),
        (Reader.read_nullable_bytes, "fffffffe"),
        (Reader.read_compact_bytes, "00"),
        (Reader.read_records, "80000000"),
        (Reader.read_bytes, "7fffffff"),
        (Reader.read_compact_bytes, "ffffffff0f"),
        (Reader.read_string, "0002 c328"),  # not UTF-8
        (Reader.read_uvarint, "ffffffff1f"),  # 33 bits
        (Reader.read_uvarint, "8080808080"),  # no end within 5 bytes
        (Reader.read_uvarint, "808080808000"),
    ],
)
def test_a_value_that_violates_its_type_is_damage(read: Callable[[Reader], Any], encoded: str) -> None:
    with pytest.raises(CorruptDataError):
        read(Reader(bytes.fromhex(encoded)))


@pytest.mark.parametrize("count", [-2, -1, 4, 2**31 - 1])
def test_a_count_is_refused_before_memory_is_taken_for_it(count: int) -> None:
    with pytest.raises(CorruptDataError):
        Reader(bytes(15)).checked_count(count, 4)


def test_a_count_that_just_fits_is_accepted() -> None:
    assert Reader(bytes(15)).checked_count(3, 5) == 3


def test_records_are_read_as_a_view_that_can_be_written_to() -> None:
    frame = bytearray.fromhex("00000002 6162")
    records = Reader(frame).read_records()
    assert records is not None

    records[0] = 0x7A

    assert frame.endswith(b"zb")


def test_large_records_are_referenced_and_small_ones_copied() -> None:
    large, small = bytearray(LARGE_BUFFER_BYTES), bytearray(LARGE_BUFFER_BYTES - 1)
    writer = Writer()
    writer.write_records(small)
    writer.write_records(large)
    writer.write_int8(7)

    parts = writer.parts()

    assert [part is large for part in parts] == [False, True, False]
    assert b"".join(parts) == writer.getvalue()


def test_tagged_fields_nobody_knows_are_passed_over() -> None:
    reader = Reader(bytes.fromhex("02 05 02 aabb 09 00 77"))
    reader.skip_tagged_fields()

    assert reader.read_int8() == 0x77


@pytest.mark.parametrize("encoded", ["02 05 00 05 00", "02 05 00 04 00", "01 00 05 aa", "7f", "ffffffff0f"])
def test_tagged_fields_must_ascend_and_fit(encoded: str) -> None:
    with pytest.raises(CorruptDataError):
        Reader(bytes.fromhex(encoded)).skip_tagged_fields()


def test_a_region_ends_the_buffer_early_and_must_be_read_whole() -> None:
    reader = Reader(bytes(8))
    outer = reader.begin_region(4)
    assert reader.remaining == 4
    with pytest.raises(CorruptDataError):
        reader.read_view(8)
    with pytest.raises(CorruptDataError, match="4 bytes left over"):
        reader.end_region(outer)

    reader.read_int32()
    reader.end_region(outer)
    assert reader.remaining == 4


def test_a_region_cannot_exceed_the_buffer() -> None:
    with pytest.raises(CorruptDataError):
        Reader(bytes(3)).begin_region(4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", 128),
        ("int16", -32769),
        ("int32", 1 << 31),
        ("uvarint", -1),
        ("uvarint", 1 << 32),
        ("string", "x" * 32768),
        ("compact_string", "ä" * 16384),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, struct.error)):
        getattr(Writer(), f"write_{name}")(value)


def test_buffers_of_wider_items_are_measured_in_bytes() -> None:
    wide = memoryview(bytearray(8)).cast("Q")
    writer = Writer()
    writer.write_bytes(wide)

    assert writer.getvalue() == bytes.fromhex("00000008") + bytes(8)
