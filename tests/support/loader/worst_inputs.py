"""Inputs of some bytes whose schema or values double, nest, repeat or refer: what they would become is any size."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import lz4.frame
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import zstandard

MIB: Final = 1 << 20
SYNC: Final = b"M" * 16
_BIG: Final = tuple(4**power * MIB for power in range(6))  # 1 MiB to 1 GiB
_MANY: Final = tuple(10**power for power in range(2, 9))
_SOME: Final = tuple(10**power for power in range(2, 7))
_LEVELS: Final = (8, 16, 24, 32, 40, 48)


@dataclass(frozen=True, slots=True)
class WorstInput:
    """Describes inputs of one kind, of growing sizes.

    Attributes:
        format: What is attacked.
        name: What grows.
        make: Writes the input of a size into a directory, and returns the arguments of a load.
        sizes: Growing.
    """

    format: str
    name: str
    make: Callable[[Path, int], list[str]]
    sizes: Sequence[int]


def worst_inputs() -> list[WorstInput]:
    """Return all kinds."""
    return [*_avro(), *_arrow(), *_parquet(), *_orc(), *_tables(), *_texts(), *_archives()]


def _file(make: Callable[[int], bytes], suffix: str, *arguments: str) -> Callable[[Path, int], list[str]]:
    def write(directory: Path, size: int) -> list[str]:
        path = directory / f"worst{suffix}"
        path.write_bytes(make(size))
        return [str(path), *arguments]

    return write


# -- Avro --------------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """Return a long of Avro."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def avro_head(schema: Any, codec: str = "null", more: Mapping[str, bytes] | None = None) -> bytes:
    """Return the header of a file."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    pairs = {"avro.schema": text, "avro.codec": codec.encode(), **(more or {})}
    items = b"".join(number(len(key)) + key.encode() + number(len(value)) + value for key, value in pairs.items())
    return b"Obj\x01" + number(len(pairs)) + items + b"\0" + SYNC


def avro_block(rows: int, data: bytes) -> bytes:
    """Return a block whose data are packed already."""
    return number(rows) + number(len(data)) + data + SYNC


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def _doubled_types(levels: int, leaf: str) -> bytes:
    fields = [("f0", _record("R0", ("x", leaf)))]
    fields += [(f"f{i}", _record(f"R{i}", ("a", f"R{i - 1}"), ("b", f"R{i - 1}"))) for i in range(1, levels)]
    return avro_head(_record("top", *fields)) + (avro_block(1, b"") if leaf == "null" else b"")


def _chained_types(count: int) -> bytes:
    fields = [("f0", _record("R0", ("x", "int")))]
    fields += [(f"f{i}", _record(f"R{i}", ("a", f"R{i - 1}"))) for i in range(1, count)]
    return avro_head(_record("top", *fields))


def _packed(codec: str, data: bytes) -> bytes:
    if codec == "deflate":
        return zlib.compress(data, 9)[2:-4]
    if codec == "snappy":
        import cramjam

        return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")
    pack: dict[str, Callable[[bytes], bytes]] = {
        "bzip2": bz2.compress,
        "xz": lzma.compress,
        "zstandard": zstandard.compress,
    }
    return pack[codec](data)


def _long_text(codec: str, size: int) -> bytes:
    return avro_head(_record("r", ("s", "string")), codec) + avro_block(1, _packed(codec, number(size) + bytes(size)))


def _avro() -> Iterator[WorstInput]:
    kind = partial(WorstInput, "avro")
    yield kind("types that name another one twice", _file(lambda n: _doubled_types(n, "int"), ".avro"), _LEVELS)
    yield kind("the same, of nulls", _file(lambda n: _doubled_types(n, "null"), ".avro"), _LEVELS)
    yield kind("types that name one another", _file(_chained_types, ".avro"), _SOME[:4])
    yield kind(
        "arrays in arrays",
        _file(lambda n: avro_head(b'{"type":"array","items":' * n + b'"int"' + b"}" * n), ".avro"),
        _SOME[:5],
    )
    yield kind(
        "the same in a record",
        _file(
            lambda n: avro_head(
                b'{"type":"record","name":"r","fields":[{"name":"a","type":'
                + b'{"type":"array","items":' * n
                + b'"int"'
                + b"}" * n
                + b"}]}"
            ),
            ".avro",
        ),
        _SOME[:5],
    )
    yield kind(
        "fields", _file(lambda n: avro_head(_record("r", *((f"f{i}", "int") for i in range(n)))), ".avro"), _SOME
    )
    yield kind(
        "symbols",
        _file(
            lambda n: avro_head(
                _record("r", ("e", {"type": "enum", "name": "e", "symbols": [f"s{i}" for i in range(n)]}))
            ),
            ".avro",
        ),
        _SOME,
    )
    yield kind("a default", _file(lambda n: avro_head(_with_default("[" * n + "]" * n)), ".avro"), _SOME[:5])
    yield kind(
        "entries of its header",
        _file(lambda n: avro_head(_record("r", ("a", "int")), more={f"k{i}": b"" for i in range(n)}), ".avro"),
        _SOME,
    )
    nulls = _record("r", ("a", {"type": "array", "items": "null"}))
    yield kind(
        "nulls of an array", _file(lambda n: avro_head(nulls) + avro_block(1, number(n) + b"\0"), ".avro"), _MANY
    )
    empty = _record("r", ("a", {"type": "array", "items": _record("e")}))
    yield kind(
        "empty records of an array",
        _file(lambda n: avro_head(empty) + avro_block(1, number(n) + b"\0"), ".avro"),
        _MANY,
    )
    yield kind("rows without a byte", _file(lambda n: avro_head(_record("r")) + avro_block(n, b""), ".avro"), _MANY)
    yield kind(
        "rows of nulls",
        _file(lambda n: avro_head(_record("r", ("a", "null"))) + avro_block(n, b""), ".avro"),
        (*_MANY[:4], 1 << 60),
    )
    yield kind("a text that is not there", _file(_text_not_there, ".avro"), (MIB, 1 << 31, 1 << 62))
    for codec in ("deflate", "bzip2", "xz", "zstandard", "snappy"):
        yield kind(f"a text, {codec}", _file(partial(_long_text, codec), ".avro"), _BIG[: 5 if codec == "bzip2" else 6])
    inner = _record("n", ("next", ["null", "n"]))
    yield kind(
        "a list by references",
        _file(lambda n: avro_head(inner) + avro_block(1, b"\x02" * n + b"\0"), ".avro"),
        _SOME,
    )


def _with_default(text: str) -> bytes:
    return b'{"type":"record","name":"r","fields":[{"name":"a","type":"int","default":' + text.encode() + b"}]}"


def _text_not_there(size: int) -> bytes:
    return avro_head(_record("r", ("s", "string"))) + avro_block(1, number(size) + b"x")


# -- Arrow -------------------------------------------------------------------------------------------------------------


def _arrow_file(make: Callable[[int], pa.Array], codec: str | None = None) -> Callable[[Path, int], list[str]]:
    def written(size: int) -> bytes:
        batch = pa.record_batch([make(size)], ["a"])
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    return _file(written, ".arrow")


def _nulls(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.null(), count, [None])  # pa.nulls() makes a bit for each


def _list_of(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _views(count: int) -> pa.Array:
    size = 1000
    found: pa.Array = pa.nulls(size)
    for _ in range(count):
        starts, sizes = pa.array([0] * size, pa.int32()), pa.array([size] * size, pa.int32())
        found = pa.ListViewArray.from_arrays(starts, sizes, found)
    return found.slice(0, 1)


def _words_of_words(levels: int) -> pa.Array:
    found: pa.Array = pa.array(["x" * 100])
    for _ in range(levels):
        ten = pa.DictionaryArray.from_arrays(pa.array([0] * 10, pa.int32()), found)
        found = pa.ListArray.from_arrays(pa.array([0, 10], pa.int32()), ten)
    return found


def _nested(depth: int) -> pa.Array:
    found: pa.Array = pa.array([1])
    for _ in range(depth):
        found = _list_of(found)
    return found


def _shared_views(size: int) -> pa.Array:
    """Return 65,536 views of one text."""
    text = pa.py_buffer(b"x" * size)
    view = size.to_bytes(4, "little") + b"xxxx" + (0).to_bytes(4, "little") + (0).to_bytes(4, "little")
    return pa.Array.from_buffers(pa.string_view(), 65536, [None, pa.py_buffer(view * 65536), text])


def _arrow() -> Iterator[WorstInput]:
    kind = partial(WorstInput, "arrow")
    yield kind("nulls of a list", _arrow_file(lambda n: _list_of(pa.nulls(n))), (*_MANY, 2 * 10**9))
    yield kind("rows of nulls", _arrow_file(_nulls), _MANY[:5])
    yield kind("list views of list views", _arrow_file(_views), (1, 2, 3, 4, 5))
    yield kind("lists of words of lists", _arrow_file(_words_of_words), (2, 4, 6, 8, 10))
    yield kind("lists in lists", _arrow_file(_nested), (10, 30, 60, 62))
    yield kind(
        "a word of 65,536 rows",
        _arrow_file(lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * 65536, pa.int32()), pa.array(["x" * n]))),
        (100, 1000, 10_000, 20_000, 17 * MIB),
    )
    yield kind("views of one text", _arrow_file(_shared_views), (100, 1000, 10_000, 17 * MIB))
    yield kind(
        "a run of one text",
        _arrow_file(
            lambda n: pa.RunEndEncodedArray.from_arrays(
                pa.array([65536], pa.int32()), pa.array(["x" * n], pa.large_string())
            )
        ),
        (100, 1000, 20_000, 17 * MIB),
    )
    yield kind(
        "a list of one run",
        _arrow_file(
            lambda n: _list_of(pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int32()), pa.array(["x" * 100])))
        ),
        _MANY,
    )
    yield kind(
        "a fixed list of nulls",
        _arrow_file(lambda n: pa.FixedSizeListArray.from_arrays(pa.nulls(n), n)),
        (*_MANY, 2 * 10**9),
    )
    yield kind("a text, zstd", _arrow_file(lambda n: pa.array(["\0" * n], pa.large_string()), "zstd"), _BIG)
    yield kind("a text, lz4", _arrow_file(lambda n: pa.array(["\0" * n], pa.large_string()), "lz4"), _BIG[:5])
    yield kind(
        "columns",
        _file(
            lambda n: _written_ipc(pa.schema([(f"c{i}", pa.null()) for i in range(n)])),
            ".arrow",
        ),
        _SOME[:4],
    )
    yield kind(
        "zeros behind its magic, zstd",
        _file(lambda n: zstandard.compress(b"ARROW1\0\0" + bytes(n)), ".arrow.zst"),
        (*_BIG, 3 << 30),
    )


def _written_ipc(schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema):
        pass
    return sink.getvalue()


# -- Parquet -----------------------------------------------------------------------------------------------------------


def _parquet_file(make: Callable[[int], Any], **options: Any) -> Callable[[Path, int], list[str]]:
    def written(size: int) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.table({"a": make(size)}), sink, **options)
        return sink.getvalue()

    return _file(written, ".parquet")


def _repeated(count: int, size: int) -> pa.ChunkedArray:
    """Return 65,536 rows of so many words."""
    return pa.chunked_array([pa.array([str(i % count) * size for i in range(2048)])] * 32)


def varint(value: int) -> bytes:
    """Return an unsigned number of Thrift's compact protocol and of Protocol Buffers."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _parquet_with(footer: bytes) -> bytes:
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _parquet() -> Iterator[WorstInput]:
    kind = partial(WorstInput, "parquet")
    for codec in ("zstd", "gzip", "snappy"):
        for words in (False, True):
            yield kind(
                f"a text, {codec}{', as a word' if words else ''}",
                _parquet_file(
                    lambda n: pa.array(["\0" * n], pa.large_string()),
                    compression=codec,
                    use_dictionary=words,
                    write_statistics=False,
                ),
                _BIG[: 6 if codec == "zstd" else 5],
            )
    for count in (8, 1000):
        yield kind(
            f"65,536 rows of {count} words",
            _parquet_file(
                partial(_repeated, count),
                compression="zstd",
                dictionary_pagesize_limit=1 << 30,
                row_group_size=65536,
                write_statistics=False,
            ),
            (10, 100, 1000, 5000, 10_000) if count == 8 else (10, 100, 1000),
        )
    yield kind("nulls of a list", _parquet_file(lambda n: pa.array([[None] * n], pa.list_(pa.int8()))), _MANY[:6])
    yield kind("lists in lists", _parquet_file(_nested), (10, 30, 49))
    yield kind("rows of nulls", _parquet_file(lambda n: pa.nulls(n, pa.int32()), row_group_size=1 << 30), _MANY[:5])
    yield kind(
        "empty structs of its footer",
        _file(lambda n: _parquet_with(b"\x29\xfc" + varint(n) + bytes(n) + b"\0"), ".parquet"),
        _MANY[:6],
    )
    yield kind(
        "the same, zstd",
        _file(lambda n: zstandard.compress(_parquet_with(b"\x29\xfc" + varint(n) + bytes(n) + b"\0")), ".parquet.zst"),
        _MANY[:6],
    )
    yield kind(
        "structs in structs of its footer",
        _file(lambda n: _parquet_with(b"\x4c" + b"\x1c" * n + b"\0" * n), ".parquet"),
        _SOME,
    )
    yield kind(
        "columns",
        _file(lambda n: _wide_parquet(n), ".parquet"),
        _SOME[:3],
    )
    yield kind(
        "row groups",
        _file(_many_groups, ".parquet"),
        _SOME[:4],
    )
    yield kind(
        "a word of its metadata",
        _file(lambda n: _wide_parquet(1, metadata={"k": "\0" * n}), ".parquet"),
        _BIG[:4],
    )


def _wide_parquet(count: int, metadata: dict[str, str] | None = None) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([(f"c{i}", pa.int8()) for i in range(count)], metadata)
    pq.write_table(pa.table([[1]] * count, schema), sink)
    return sink.getvalue()


def _many_groups(count: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([1] * count, pa.int8())}), sink, row_group_size=1)
    return sink.getvalue()


# -- ORC ---------------------------------------------------------------------------------------------------------------


def _field(field: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(field << 3) + varint(value)
    return varint(field << 3 | 2) + varint(len(value)) + value


def _orc_with(footer: bytes) -> bytes:
    packed = b""
    for start in range(0, len(footer), 1 << 18):
        pack = zlib.compressobj(9, zlib.DEFLATED, -15)
        chunk = pack.compress(footer[start : start + (1 << 18)]) + pack.flush()
        packed += (len(chunk) << 1).to_bytes(3, "little") + chunk
    script = _field(1, len(packed)) + _field(2, 1) + _field(3, 1 << 18) + _field(4, varint(0) + varint(12))
    script += _field(5, 0) + _field(6, 6) + _field(8000, b"ORC")
    return b"ORC" + packed + script + bytes([len(script)])


def _orc_types(types: Sequence[bytes], more: bytes = b"") -> bytes:
    return _orc_with(
        _field(1, 3) + _field(2, 0) + b"".join(_field(4, kind) for kind in types) + more + _field(6, 0) + _field(8, 0)
    )


_ORC_INT: Final = _field(1, 3)


def _orc_struct(*children: int) -> bytes:
    names = b"".join(_field(3, b"f%d" % i) for i in range(len(children)))
    return _field(1, 12) + _field(2, b"".join(map(varint, children))) + names


def _orc_file(make: Callable[[int], Any], codec: str = "zlib") -> Callable[[Path, int], list[str]]:
    def written(size: int) -> bytes:
        sink = io.BytesIO()
        pyarrow.orc.write_table(pa.table({"a": make(size)}), sink, compression=codec, dictionary_key_size_threshold=1.0)
        return sink.getvalue()

    return _file(written, ".orc")


def _orc() -> Iterator[WorstInput]:
    kind = partial(WorstInput, "orc")
    lists = [_field(1, 10) + _field(2, varint(i + 2)) for i in range(1_000_000)]
    yield kind("lists in lists", _file(lambda n: _orc_types([_orc_struct(1), *lists[:n], _ORC_INT]), ".orc"), _SOME[:5])
    yield kind(
        "types that name another one twice",
        _file(lambda n: _orc_types([_orc_struct(1), *(_orc_struct(i + 2, i + 2) for i in range(n)), _ORC_INT]), ".orc"),
        _LEVELS,
    )
    yield kind("a type that names itself", _file(lambda n: _orc_types([_orc_struct(0) * n]), ".orc"), (1, 10))
    yield kind(
        "columns",
        _file(lambda n: _orc_types([_orc_struct(*range(1, n + 1)), *[_ORC_INT] * n]), ".orc"),
        _SOME[:5],
    )
    yield kind(
        "stripes of its footer",
        _file(lambda n: _orc_types([_orc_struct(1), _ORC_INT], _field(3, _field(5, 0)) * n), ".orc"),
        _SOME,
    )
    yield kind(
        "zeros of its footer",
        _file(lambda n: _orc_types([_orc_struct(1), _ORC_INT], _field(5, bytes(n))), ".orc"),
        _BIG,
    )
    for codec in ("zlib", "zstd", "snappy"):
        yield kind(f"a text, {codec}", _orc_file(lambda n: pa.array(["\0" * n]), codec), _BIG[:5])
    yield kind("nulls of a list", _orc_file(lambda n: pa.array([[None] * n], pa.list_(pa.int8()))), _MANY[:6])
    yield kind(
        "65,536 rows of 8 words",
        _orc_file(lambda n: pa.array([str(i % 8) * n for i in range(65536)])),
        (10, 100, 1000, 5000),
    )


# -- Iceberg and Delta -------------------------------------------------------------------------------------------------


def _iceberg(make: Callable[[int], bytes], name: str = "v1.metadata.json") -> Callable[[Path, int], list[str]]:
    def write(directory: Path, size: int) -> list[str]:
        metadata = directory / "table" / "metadata"
        metadata.mkdir(parents=True, exist_ok=True)
        (metadata / name).write_bytes(make(size))
        (metadata / "version-hint.text").write_text("1")
        return [str(directory / "table")]

    return write


def _delta(make: Callable[[int], bytes], name: str = f"{0:020}.json") -> Callable[[Path, int], list[str]]:
    def write(directory: Path, size: int) -> list[str]:
        log = directory / "table" / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        first = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
        (log / f"{0:020}.json").write_bytes(first + _delta_metadata('{"type":"struct","fields":[]}'))
        (log / name).write_bytes((first if name.endswith("0.json") else b"") + make(size))
        return [str(directory / "table")]

    return write


def _delta_metadata(schema: str) -> bytes:
    format_ = {"provider": "parquet", "options": {}}
    metadata = {"id": "1", "format": format_, "schemaString": schema, "partitionColumns": [], "configuration": {}}
    return json.dumps({"metaData": metadata}).encode() + b"\n"


def _iceberg_metadata(schema: str) -> bytes:
    text = (
        '{"format-version":2,"table-uuid":"00000000-0000-0000-0000-000000000001","location":"x","last-sequence-number":0,'
        '"last-updated-ms":0,"last-column-id":1,"current-schema-id":0,"schemas":[SCHEMA],"default-spec-id":0,'
        '"partition-specs":[{"spec-id":0,"fields":[]}],"last-partition-id":999,"default-sort-order-id":0,'
        '"sort-orders":[{"order-id":0,"fields":[]}]}'
    )
    return text.replace("SCHEMA", schema).encode()


def _iceberg_lists(depth: int) -> bytes:
    kind = '{"type":"list","element-id":2,"element-required":false,"element":' * depth + '"int"' + "}" * depth
    field = '{"id":1,"name":"a","required":false,"type":' + kind + "}"
    return _iceberg_metadata('{"type":"struct","schema-id":0,"fields":[' + field + "]}")


def _delta_lists(depth: int) -> bytes:
    kind = '{"type":"array","containsNull":true,"elementType":' * depth + '"integer"' + "}" * depth
    field = '{"name":"a","nullable":true,"metadata":{},"type":' + kind + "}"
    return _delta_metadata('{"type":"struct","fields":[' + field + "]}")


def _tables() -> Iterator[WorstInput]:
    kind = partial(WorstInput, "iceberg")
    yield kind("blanks, gzip", _iceberg(lambda n: gzip.compress(b" " * n), "v1.gz.metadata.json"), _BIG)
    yield kind("blanks", _iceberg(lambda n: b" " * n), _BIG[:5])
    yield kind("lists in lists", _iceberg(lambda n: b"[" * n), _SOME)
    yield kind("types in types", _iceberg(_iceberg_lists), _SOME[:5])
    yield kind(
        "fields",
        _iceberg(
            lambda n: _iceberg_metadata(
                '{"type":"struct","schema-id":0,"fields":['
                + ",".join(f'{{"id":{i},"name":"a{i}","required":false,"type":"int"}}' for i in range(n))
                + "]}"
            )
        ),
        _SOME[:4],
    )
    kind = partial(WorstInput, "delta")
    yield kind("blanks", _delta(lambda n: b" " * n), _BIG[:5])
    yield kind("lists in lists", _delta(lambda n: b"[" * n), _SOME)
    yield kind("types in types", _delta(_delta_lists), _SOME[:5])
    yield kind(
        "files",
        _delta(
            lambda n: (
                _delta_metadata('{"type":"struct","fields":[]}')
                + b"".join(
                    b'{"add":{"path":"f%d","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}\n' % i
                    for i in range(n)
                )
            )
        ),
        _SOME[:4],
    )
    yield kind(
        "a checkpoint of one text",
        _delta(
            lambda n: _checkpoint("\0" * n),
            f"{1:020}.checkpoint.parquet",
        ),
        _BIG[:5],
    )


def _checkpoint(text: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"add": [{"path": text}]}), sink, compression="zstd")
    return sink.getvalue()


# -- texts -------------------------------------------------------------------------------------------------------------


def _line(head: bytes, size: int) -> bytes:
    return head + b"x" * size


def _packed_line(head: bytes, size: int) -> bytes:
    return zstandard.compress(head + b"x" * size)


def _texts() -> Iterator[WorstInput]:
    for kind in ("documents", "json"):
        named = partial(WorstInput, kind)
        given = ("--format", kind)
        yield named("a text", _file(lambda n: b'["' + b"x" * n + b'"]', ".json", *given), _BIG[:4])
        yield named("lists in lists", _file(lambda n: b"[" * n, ".json", *given), _MANY[:6])
        yield named("objects in objects", _file(lambda n: b'{"a":' * n, ".json", *given), _MANY[:6])
        yield named("digits", _file(lambda n: b"[" + b"1" * n + b"]", ".json", *given), _BIG[:4])
        yield named("blanks", _file(lambda n: b" " * n, ".json", *given), _BIG[:4])
        yield named("escapes", _file(lambda n: b'["' + b"\\u0000" * n + b'"]', ".json", *given), _MANY[:6])
        yield named("a text, zstd", _file(lambda n: zstandard.compress(b'["' + b"x" * n), ".json.zst", *given), _BIG)
    for kind, head in (("jsonl", b'{"a":"'), ("lines", b""), ("csv", b'a\n"')):
        named = partial(WorstInput, kind)
        given = ("--format", kind)
        yield named("a line", _file(partial(_line, head), f".{kind}", *given), _BIG[:4])
        yield named("a line, zstd", _file(partial(_packed_line, head), ".zst", *given), _BIG)
    yield WorstInput(
        "jsonl",
        "objects in objects, with a key",
        _file(lambda n: b'{"a":' * n + b"1" + b"}" * n, ".jsonl", "--format", "jsonl", "--key", "a"),
        _MANY[:6],
    )
    yield WorstInput(
        "jsonl",
        "keys of one object",
        _file(
            lambda n: b"{" + b",".join(b'"k%d":1' % i for i in range(n)) + b"}",
            ".jsonl",
            "--format",
            "jsonl",
            "--key",
            "a",
        ),
        _SOME[:5],
    )
    named = partial(WorstInput, "csv")
    yield named("columns", _file(lambda n: b",".join(b"c%d" % i for i in range(n)) + b"\n", ".csv"), _SOME)
    yield named("empty columns", _file(lambda n: b"," * n + b"\n" + b"," * n, ".csv", "--column-names", "a"), _MANY[:6])
    yield named("quotes", _file(lambda n: b"a\n" + b'""' * n, ".csv"), _MANY[:6])
    yield named("digits", _file(lambda n: b"a\n" + b"1" * n + b"\n", ".csv", "--infer-types"), _BIG[:4])
    yield named(
        "digits of one number", _file(lambda n: b"a\n" + b"1" * n + b"\n", ".csv", "--column-type", "a=float"), _BIG[:4]
    )
    yield named("a line to skip", _file(lambda n: b"x" * n, ".csv", "--skip-lines", "1"), _BIG[:4])


# -- archives ----------------------------------------------------------------------------------------------------------


def _zip(members: Iterator[tuple[str, bytes]]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return sink.getvalue()


def _overlapping(count: int) -> bytes:
    """Return an archive whose members are all the same bytes of it."""
    data = _zip(iter([("0.txt", b"x\n" * (1 << 19))]))
    at = data.index(b"PK\x01\x02")
    entry, end = data[at : data.index(b"PK\x05\x06")], data[data.index(b"PK\x05\x06") :]
    end = end[:8] + count.to_bytes(2, "little") * 2 + (len(entry) * count).to_bytes(4, "little") + end[16:]
    return data[:at] + entry * count + end


def _packed_lines(size: int) -> bytes:
    return b"\n" * size


def _archives() -> Iterator[WorstInput]:
    kind = partial(WorstInput, "archive")
    yield kind("empty members", _file(lambda n: _zip((f"{i}.txt", b"") for i in range(n)), ".zip"), _SOME[:3])
    yield kind("a member of one line", _file(lambda n: _zip(iter([("a.txt", b"x" * n)])), ".zip"), _BIG)
    yield kind("members that are the same bytes", _file(_overlapping, ".zip"), (2, 10, 100, 10_000))
    yield kind("an archive in an archive", _file(_nested_zip, ".zip"), (1, 2, 3))
    yield kind("empty gzip members", _file(lambda n: gzip.compress(b"") * n, ".txt.gz"), _SOME[:4])
    yield kind("empty zstd frames", _file(lambda n: zstandard.compress(b"") * n, ".txt.zst"), _SOME[:4])
    yield kind("empty xz streams", _file(lambda n: lzma.compress(b"") * n, ".txt.xz"), _SOME[:4])
    yield kind("empty bz2 streams", _file(lambda n: bz2.compress(b"") * n, ".txt.bz2"), _SOME[:4])
    yield kind("empty lz4 frames", _file(lambda n: lz4.frame.compress(b"") * n, ".txt.lz4"), _SOME[:4])
    yield kind(
        "a window, zstd",
        _file(lambda n: b"\x28\xb5\x2f\xfd\x00" + bytes([(n - 10) << 3]) + b"\x03\0\0a", ".txt.zst"),
        (20, 24, 27, 28, 31),
    )
    yield kind("a dictionary, xz", _file(_xz_dictionary, ".txt.xz"), (24, 26, 28, 30))


def _nested_zip(levels: int) -> bytes:
    data = _zip(iter([("a.txt", b"x\n")]))
    for _ in range(levels):
        data = _zip(iter([("a.zip", data)]))
    return data


def _xz_dictionary(power: int) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(b"x\n", filters=filters))
    at = data.index(b"\x21\x01", 12)  # LZMA2, whose properties are one byte
    data[at + 2] = (power - 12) * 2
    head = bytes(data[12 : 12 + (data[12] + 1) * 4 - 4])
    data[12 + len(head) : 16 + len(head)] = zlib.crc32(head).to_bytes(4, "little")
    return bytes(data)
