"""Avro container files are read with the types of Parquet, up to a proven end."""

from __future__ import annotations

import bz2
import datetime
import io
import json
import lzma
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import cramjam
import fastavro
import lz4.block
import pytest
import zstandard

from kafkaprod.loader.formats import readers
from kafkaprod.loader.formats.avro_codecs import DamagedBlockError, TooLargeError, decompressor_of
from kafkaprod.loader.formats.avro_types import arrow_schema
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of
from tests.support.loader.worst_inputs import avro_head

ID = "189f9591-975a-4c82-8d8b-1f5fdd00b32c"
MARK = b"the mark of file"


def write(path: Path, fields: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], **options: Any) -> Path:
    schema = {"type": "record", "name": "row", "namespace": "shop", "fields": fields}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, rows, sync_marker=MARK, **options)
    path.write_bytes(sink.getvalue())
    return path


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


# type, value, the text in JSON
TYPES = [
    ("boolean", True, "true"),
    ("int", -1, "-1"),
    ("double", 1e20, "1.0E20"),
    ("bytes", b"\x01", '"AQ=="'),
    ("string", 'é"', '"é\\""'),
    (["null", "string"], None, "null"),
    (["string"], "x", '"x"'),
    (logical("int", "date"), 20_000_000, '"+56728-02-22"'),
    (logical("int", "time-millis"), datetime.time(1, 2, 3), '"01:02:03"'),
    (logical("long", "timestamp-millis"), 253_402_300_800_000, '"+10000-01-01T00:00:00.000Z"'),
    (logical("long", "local-timestamp-micros"), datetime.datetime(2024, 2, 29), '"2024-02-29T00:00:00.000"'),
    (logical("bytes", "decimal", precision=10, scale=2), Decimal("1.50"), "1.50"),
    (logical("string", "uuid"), ID, f'"{ID}"'),
    (logical("fixed", "uuid", size=16, name="id"), bytes.fromhex(ID.replace("-", "")), f'"{ID}"'),
    ({"type": "enum", "name": "size", "symbols": ["S", "M"]}, "M", '"M"'),
    ({"type": "map", "values": "long"}, {"k": 1}, '{"k":1}'),
    ({"type": "array", "items": ["null", "long"]}, [1, None], "[1,null]"),
    ({"type": "record", "name": "inner", "fields": [{"name": "q", "type": "int"}]}, {"q": 1}, '{"q":1}'),
]


@pytest.mark.parametrize(("kind", "value", "text"), TYPES, ids=[str(kind)[:40] for kind, _, _ in TYPES])
def test_each_type_has_the_text_of_its_arrow_type(tmp_path: Path, kind: Any, value: Any, text: str) -> None:
    path = write(tmp_path / "a.avro", [{"name": "x", "type": kind}], [{"x": value}])
    assert values_of(path) == [f'{{"x":{text}}}'.encode()]


def test_a_type_is_known_by_its_name_within_its_namespace(tmp_path: Path) -> None:
    size = {"type": "enum", "name": "size", "symbols": ["S", "M"]}
    path = write(
        tmp_path / "a.avro", [{"name": "x", "type": size}, {"name": "y", "type": "size"}], [{"x": "S", "y": "M"}]
    )
    assert values_of(path) == [b'{"x":"S","y":"M"}']


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz", "lz4"])
def test_the_codecs_of_avro_are_read(tmp_path: Path, codec: str) -> None:
    rows = [{"x": i} for i in range(100)]
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "int"}], rows, codec=codec, sync_interval=50)
    assert values_of(path) == [b'{"x":%d}' % i for i in range(100)]


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [(["int", "string"], 1, "union"), (logical("fixed", "duration", size=12, name="d"), b"\0" * 12, "interval")],
)
def test_a_type_without_a_form_is_refused_and_can_be_left_out(tmp_path: Path, kind: Any, value: Any, name: str) -> None:
    fields = [{"name": "bad", "type": kind}, {"name": "a", "type": "int"}]
    path = write(tmp_path / "a.avro", fields, [{"bad": value, "a": 1}])
    with pytest.raises(
        LoadRefusedError, match=f"a.avro: column 'bad' has type .*{name}.* Leave it out with --columns a"
    ):
        values_of(path)
    assert values_of(path, ReadOptions(RowPlan(""), columns=["a"])) == [b'{"a":1}']


def test_rows_that_are_no_records_and_types_within_themselves_are_refused(tmp_path: Path) -> None:
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, "int", [1])
    with pytest.raises(LoadRefusedError, match="its rows are no records, but int"):
        values_of(tmp_path / "a.avro")
    write(tmp_path / "b.avro", [{"name": "next", "type": ["null", "row"]}], [{"next": None}])
    with pytest.raises(LoadRefusedError, match=r"its type 'shop.row' contains itself"):
        values_of(tmp_path / "b.avro")


def test_a_header_of_many_entries_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    entries = {f"k{i}": b"" for i in range(10_001)}
    path.write_bytes(avro_head({"type": "record", "name": "r", "fields": []}, more=entries))
    with pytest.raises(LoadError, match=r"its header has 10,003 entries, more than 10,000"):
        values_of(path)


def test_a_cut_and_a_wrong_mark_are_noticed(tmp_path: Path) -> None:
    rows = [{"x": i} for i in range(50)]
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "int"}], rows, sync_interval=20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(LoadError, match="is cut off"):
        values_of(path)
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(LoadError, match="does not end with the mark"):
        values_of(path)


@pytest.mark.parametrize("damage", [(b'"name"', b'"nane"'), (b'"type": "int"', b'"type": "inu"'), (b'"int"', b"[1,2]")])
def test_a_damaged_schema_is_noticed(tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "int"}], [{"x": 1}])
    whole = path.read_bytes()
    assert damage[0] in whole
    path.write_bytes(whole.replace(*damage))
    with pytest.raises(LoadError, match=r"is damaged|not a whole avro file"):
        values_of(path)


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "int"}], [{"x": 1}])
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    with pytest.raises(LoadRefusedError, match=r"Avro needs fastavro: pip install 'kafkaprod\[avro\]'"):
        values_of(path)


def test_a_file_without_a_name_that_tells_its_format_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "part-0", [{"name": "x", "type": "int"}], [{"x": 1}])
    assert values_of(path) == [b'{"x":1}']
    (tmp_path / "a.csv").write_text("ORCID,name\n1,x\n")
    (tmp_path / "b.csv").write_text("BZh9,PAR1\n1,x\n")
    assert [json.loads(row or b"") for row in values_of(tmp_path / "a.csv")] == [{"ORCID": "1", "name": "x"}]
    assert [json.loads(row or b"") for row in values_of(tmp_path / "b.csv")] == [{"BZh9": "1", "PAR1": "x"}]


@pytest.mark.parametrize(
    "kind", ["null", {"type": "record", "name": "e", "fields": []}, {"type": "fixed", "name": "z", "size": 0}]
)
def test_values_without_a_byte_cannot_be_more_than_fit_into_memory(tmp_path: Path, kind: Any) -> None:
    value: Any = None if kind == "null" else {} if kind["type"] == "record" else b""
    path = write(tmp_path / "a.avro", [{"name": "x", "type": kind}], [{"x": value}])
    header, block = path.read_bytes().split(MARK)[:2]
    assert block == b"\x02\x00"  # one record of no bytes
    path.write_bytes(header + MARK + b"\x80\x80\x80\x80\x80\x40" + b"\x00" + MARK)
    with pytest.raises(LoadError, match="a block has 1,099,511,627,776 records in 0 bytes"):
        values_of(path)
    path = write(tmp_path / "b.avro", [{"name": "x", "type": {"type": "array", "items": kind}}], [{"x": [value]}])
    with pytest.raises(LoadRefusedError, match="an array of its schema has items without a value"):
        values_of(path)


def test_records_of_nulls_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "null"}], [{"x": None}] * 5_000)
    assert values_of(path) == [b'{"x":null}'] * 5_000


def records_that_name_each_other(count: int, *names: str) -> list[dict[str, Any]]:
    """Fields of records, each of which has the one before as often as there are names."""
    first = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    others = [
        {"type": "record", "name": f"R{i}", "fields": [{"name": name, "type": f"R{i - 1}"} for name in names]}
        for i in range(1, count)
    ]
    return [{"name": f"f{i}", "type": each} for i, each in enumerate([first, *others])]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (records_that_name_each_other(40, "a", "b"), "its schema has more than 65,536 types, each counted where it"),
        (records_that_name_each_other(500, "a"), "its types are nested more than 64 deep"),
    ],
)
def test_types_that_name_each_other_are_counted_where_they_are_used(
    tmp_path: Path, fields: list[dict[str, Any]], message: str
) -> None:
    schema = json.dumps({"type": "record", "name": "top", "fields": fields})
    with pytest.raises(LoadRefusedError, match=message):
        arrow_schema(json.loads(schema), "a.avro")
    assert len(arrow_schema({"type": "record", "name": "top", "fields": fields[:9]}, "a.avro")) == 9


@pytest.mark.parametrize("codec", ["deflate", "snappy", "bzip2", "xz", "lz4", "zstandard"])
def test_a_block_is_not_decompressed_beyond_its_limit(codec: str) -> None:
    plain = bytes(1 << 20)
    module: Any = {"bzip2": bz2, "xz": lzma, "lz4": lz4.block, "zstandard": zstandard}.get(codec)
    data = b"" if module is None else module.compress(plain)
    if codec == "deflate":
        stream = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = stream.compress(plain) + stream.flush()
    if codec == "snappy":
        data = bytes(cramjam.snappy.compress_raw(plain)) + zlib.crc32(plain).to_bytes(4, "big")
    decompress = decompressor_of(codec, "a.avro")
    assert decompress is not None
    assert decompress(data, 1 << 20) == plain
    with pytest.raises(TooLargeError):
        decompress(data, (1 << 20) - 1)
    with pytest.raises(DamagedBlockError):
        decompress(data[: len(data) // 2], 1 << 20)


def test_a_large_block_is_refused_with_the_option(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "string"}], [{"x": "y" * 5000}], codec="deflate")
    with pytest.raises(LoadError, match=r"has a block of 1,001 bytes or more, .*: raise --max-row-bytes"):
        values_of(path, ReadOptions(RowPlan("", max_row_bytes=1000)))


def test_every_changed_bit_of_a_block_of_snappy_is_noticed(tmp_path: Path) -> None:
    rows = [{"x": f"name {i}"} for i in range(40)]
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "string"}], rows, codec="snappy")
    whole = path.read_bytes()
    start, end = whole.index(MARK) + len(MARK) + 3, whole.rindex(MARK)
    for place in range(start, end, 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(LoadError, match="is damaged"):
            values_of(path)


def test_a_codec_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avro", [{"name": "x", "type": "int"}], [{"x": 1}], codec="snappy")
    path.write_bytes(path.read_bytes().replace(b"snappy", b"snippy"))
    with pytest.raises(LoadRefusedError, match="its codec 'snippy' is not known; known are null, deflate, snappy"):
        values_of(path)
