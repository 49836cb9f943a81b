"""What a declaration promises, on a small message of its own."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.errors import CorruptDataError, UnsupportedVersionError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    array,
    struct_of,
)
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.primitives import Writer
from kafkaprod.protocol.schema import Request, Struct, field
from kafkaprod.structs import BytesLike


class Point(Struct):
    x: int = field(INT8)
    y: int = field(INT8, since=1, default=-1)


class Sample(Request, api=ApiKey.PRODUCE, versions=(0, 3), flexible_from=2):
    number: int = field(INT16)
    is_set: bool = field(BOOL)
    name: str = field(STRING.nullable(since=1))
    note: str | None = field(NULLABLE_STRING, since=1)
    limit: int = field(INT32, since=1, default=-1, ignorable=True)
    points: list[Point] = field(array(Point))
    numbers: list[int] | None = field(array(INT32).nullable(), until=2)
    origin: Point = field(struct_of(Point), since=2, tag=1)
    label: str = field(STRING, since=2, tag=0)
    extra: Point | None = field(struct_of(Point).nullable(), since=3)
    secret: bytes = field(BYTES, since=3)
    records: BytesLike | None = field(RECORDS, since=3)


def test_a_classic_version_is_written_field_by_field() -> None:
    sample = Sample(number=258, is_set=True, name="n", points=[Point(x=1), Point(x=2)], numbers=[7])

    assert sample.encode(0) == bytes.fromhex("0102 01 0001 6e 00000002 01 02 00000001 00000007")


def test_a_flexible_version_is_compact_and_every_struct_ends_with_tagged_fields() -> None:
    sample = Sample(number=1, name="n", note="", limit=5, points=[Point(x=1, y=2)], numbers=None, origin=Point(x=3))

    assert sample.encode(2) == bytes.fromhex(
        "0001 00 02 6e 01 00000005 02 01 02 00 00"
        "01 01 03 03 ff 00"  # one tagged field: tag 1, 3 bytes: x, y, no tags inside
    )


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    encoded = Sample(origin=Point(x=3), label="l").encode(2)

    assert encoded.endswith(bytes.fromhex("02 00 02 02 6c 01 03 03 ff 00"))
    assert Sample.decode(encoded, 2) == Sample(origin=Point(x=3), label="l")


def test_unknown_tagged_fields_are_skipped() -> None:
    encoded = Sample(label="l").encode(2)
    with_unknown = encoded[:-5] + bytes.fromhex("02 00 02 02 6c 63 02 abcd")

    assert encoded.endswith(bytes.fromhex("01 00 02 02 6c"))
    assert Sample.decode(with_unknown, 2) == Sample(label="l")


@pytest.mark.parametrize(
    "section",
    [
        "02 01 03 03 ff 00 00 02 02 6c",  # descending
        "02 00 02 02 6c 00 02 02 6c",  # twice
        "01 00 03 02 6c 00",  # the field is shorter than its size
        "01 00 01 02",  # the field is longer than its size
        "01 00 7f 02",  # the size is beyond the end
        "7f",
    ],
)
def test_a_tagged_section_must_be_in_order_and_fit(section: str) -> None:
    without = Sample().encode(2)[:-1]

    with pytest.raises(CorruptDataError, match=r"^Sample v2: tagged fields: "):
        Sample.decode(without + bytes.fromhex(section), 2)


def test_a_value_the_version_has_no_place_for_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Sample\.note is 'x', but version 0 has no such field"):
        Sample(note="x").encode(0)
    with pytest.raises(UnsupportedVersionError, match=r"Point\.y is 5"):
        Sample(points=[Point(x=1, y=5)]).encode(0)
    with pytest.raises(UnsupportedVersionError, match=r"Sample\.numbers is \[1\]"):
        Sample(numbers=[1]).encode(3)


def test_an_ignorable_value_is_dropped() -> None:
    assert Sample(limit=5).encode(0) == Sample().encode(0)


def test_a_field_absent_in_a_version_decodes_to_its_default() -> None:
    decoded = Sample.decode(Sample(points=[Point(x=1)]).encode(0), 0)

    assert (decoded.limit, decoded.note, decoded.points[0].y) == (-1, None, -1)


def test_null_is_refused_before_the_version_that_allows_it() -> None:
    sample = Sample(number=1)
    sample.name = None  # type: ignore[assignment]

    with pytest.raises(UnsupportedVersionError, match="Sample v0: name: null is legal only from version 1 on"):
        sample.encode(0)
    assert Sample.decode(sample.encode(1), 1) == sample


def test_null_is_refused_where_no_version_allows_it() -> None:
    broken: Any = None

    with pytest.raises(ValueError, match="Sample v0: points: null where a value is required"):
        Sample(points=broken).encode(0)
    with pytest.raises(CorruptDataError, match="Sample v0: points: null where a value is required"):
        Sample.decode(bytes.fromhex("0001 00 0000 ffffffff"), 0)


def test_a_nullable_struct_has_a_byte_in_front() -> None:
    absent, present = Sample().encode(3), Sample(extra=Point(x=1, y=2)).encode(3)

    assert absent.hex() == "0000 00 01 00 ffffffff 01 ff 01 00 00".replace(" ", "")
    assert present.hex() == "0000 00 01 00 ffffffff 01 01010200 01 00 00".replace(" ", "")
    assert Sample.decode(present, 3).extra == Point(x=1, y=2)
    assert Sample.decode(absent, 3).extra is None


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"number": 1 << 15}, "number..is_set"),
        ({"name": 5}, "name"),
        ({"points": [Point(x=1), Point(x=200)]}, "points: x..y"),
        ({"points": [3]}, "points"),
        ({"points": 3}, "points"),
        ({"numbers": ["a"]}, "numbers"),
        ({"label": 3}, "tagged fields: label"),
    ],
)
def test_a_value_of_a_wrong_type_or_size_is_named(values: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=f"^Sample v2: {place}"):
        Sample(**values).encode(2)


def test_damage_names_the_message_the_field_and_the_place() -> None:
    with pytest.raises(CorruptDataError) as caught:
        Sample.decode(bytes.fromhex("0001 00 0000 00000002 01"), 0)

    assert str(caught.value) == "Sample v0: points: array of 2 elements needs 2 bytes, 1 left, at byte 9 of 10"
    assert caught.value.context == {"api": "PRODUCE"}


def test_damage_inside_an_array_names_the_element() -> None:
    with pytest.raises(CorruptDataError, match=r"^MetadataRequest v0: topics: element 1: name: 5 bytes "):
        MetadataRequest.decode(bytes.fromhex("00000002 0001 74 0005 74"), 0)


def test_bytes_left_over_are_damage() -> None:
    with pytest.raises(CorruptDataError, match="3 bytes left over"):
        Sample.decode(Sample().encode(0) + b"abc", 0)


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_is_not_declared_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"Sample has versions 0 to 3, not {version}"):
        Sample().encode(version)
    with pytest.raises(UnsupportedVersionError):
        Sample.decode(b"", version)


def test_instances_are_equal_by_value_and_not_hashable() -> None:
    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != 1
    with pytest.raises(TypeError):
        hash(Point())


def test_an_unknown_field_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="Point has no field z"):
        Point(z=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Point().z = 1  # type: ignore[attr-defined]


def test_repr_shows_buffers_by_their_size_only() -> None:
    shown = repr(Sample(name="n", secret=b"password", records=memoryview(b"batch")))

    assert "name='n'" in shown
    assert "secret=<8 bytes>, records=<5 bytes>" in shown
    assert "password" not in shown


def test_records_decode_to_a_view_of_the_buffer() -> None:
    frame = bytearray(Sample(records=b"batch").encode(3))
    records = Sample.decode(frame, 3).records
    assert isinstance(records, memoryview)

    position = frame.index(b"batch")
    frame[position] = ord("B")

    assert records == b"Batch"


def test_large_records_are_sent_without_a_copy() -> None:
    batch = bytearray(10_000)

    writer = Writer()
    Sample(records=batch).write_to(writer, 3)
    parts = writer.parts()

    assert any(part is batch for part in parts)
    assert b"".join(parts) == Sample(records=batch).encode(3)


def test_tagged_fields_need_a_flexible_version() -> None:
    class Wrong(Request, api=ApiKey.PRODUCE, versions=(0, 1), flexible_from=1):
        late: int = field(INT8, tag=0)

    with pytest.raises(TypeError, match="version 0, which is not flexible"):
        Wrong().encode(0)


def test_a_nullable_struct_cannot_be_tagged() -> None:
    with pytest.raises(TypeError, match="KIP-893"):
        field(struct_of(Point).nullable(), since=2, tag=0)
