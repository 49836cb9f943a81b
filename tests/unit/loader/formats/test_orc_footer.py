"""The types of an ORC file are looked at before its library follows them."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

from kafkaprod.loader.formats.orc_footer import check_orc_footer
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from tests.support.loader.reading import values_of

LONG, LIST, STRUCT = 4, 10, 12


def number(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def field(place: int, data: bytes) -> bytes:
    return number(place << 3 | 2) + number(len(data)) + data


def type_of(kind: int, *inner: int) -> bytes:
    return field(4, number(1 << 3) + number(kind) + b"".join(number(2 << 3) + number(each) for each in inner))


def file_of(types: list[bytes], *, is_compressed: bool = True) -> bytes:
    footer = b"".join(types)
    if is_compressed:
        stream = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = stream.compress(footer) + stream.flush()
        footer = (len(packed) << 1).to_bytes(3, "little") + packed
    postscript = number(1 << 3) + number(len(footer)) + number(2 << 3) + number(int(is_compressed))
    postscript += number(3 << 3) + number(1 << 20) + field(8000, b"ORC")
    return b"ORC" + footer + postscript + bytes([len(postscript)])


@pytest.mark.parametrize("is_compressed", [True, False])
def test_types_that_are_too_deep_are_refused(is_compressed: bool) -> None:
    for depth in (63, 64, 20_000):
        types = [type_of(STRUCT, 1), *(type_of(LIST, i + 2) for i in range(depth - 1)), type_of(LONG)]
        stream = io.BytesIO(file_of(types, is_compressed=is_compressed))
        if depth <= 64:
            check_orc_footer(stream, "a.orc")
            assert stream.tell() == 0
        else:
            with pytest.raises(LoadRefusedError, match=r"a.orc: its types are nested more than 64 deep"):
                check_orc_footer(stream, "a.orc")


def test_types_that_are_used_twice_are_counted_as_often() -> None:
    types = [type_of(STRUCT, i + 1, i + 1) for i in range(40)] + [type_of(LONG)]
    with pytest.raises(LoadRefusedError, match="more than 65,536 types"):
        check_orc_footer(io.BytesIO(file_of(types)), "a.orc")


def test_more_types_or_stripes_than_can_be_used_are_refused_while_they_are_counted() -> None:
    counted = [type_of(STRUCT, 1), type_of(LONG)]
    endless = field(4, b"\xff")  # of which nothing may be read
    many = [type_of(LONG)] * 65_537 + [endless]
    with pytest.raises(LoadRefusedError, match="more than 65,536 types"):
        check_orc_footer(io.BytesIO(file_of(many)), "a.orc")
    check_orc_footer(io.BytesIO(file_of([*counted, field(3, b"") * 10_000])), "a.orc")
    with pytest.raises(LoadRefusedError, match="has more than 10,000 stripes"):
        check_orc_footer(io.BytesIO(file_of([*counted, field(3, b"") * 10_001, endless])), "a.orc")


def test_types_inside_of_themselves_and_damaged_footers_are_errors() -> None:
    for types in ([type_of(STRUCT, 0)], [type_of(STRUCT, 1), type_of(LIST, 0)], [type_of(STRUCT, 9)]):
        with pytest.raises(LoadError, match="is damaged: type"):
            check_orc_footer(io.BytesIO(file_of(types)), "a.orc")
    good = file_of([type_of(STRUCT, 1), type_of(LONG)])
    for damaged in (b"", b"ORC", good[:-1], good[:3] + b"\xff" * 9 + good[12:]):
        with pytest.raises(LoadError, match="is not a whole orc file, or damaged"):
            check_orc_footer(io.BytesIO(damaged), "a.orc")


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_files_of_each_codec_are_read(tmp_path: Path, codec: str) -> None:
    table = pa.table(
        {"a": [1, 2], "b": [[{"x": "y"}], None], "c": pa.array([[("k", 1.5)], []], pa.map_("string", "double"))}
    )
    pyarrow.orc.write_table(table, tmp_path / "a.orc", compression=codec)
    assert values_of(tmp_path / "a.orc")[0] == b'{"a":1,"b":[{"x":"y"}],"c":{"k":1.5}}'
