"""Look at the types in the footer of an ORC file before its library does, which follows them however deep they are.

Source: ORC Specification v1, "Postscript", "Footer", "Compression"; Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from kafkaprod.compression import CODEC_IDS, decompress
from kafkaprod.loader.formats.limits import MOST_DEPTH, MOST_NODES, check_schema
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError

MOST_POSTSCRIPT_BYTES: Final = 255
MOST_FOOTER_BYTES: Final = 64 << 20
MOST_STRIPES: Final = 10_000
_FOOTER_BYTES, _COMPRESSION, _CHUNK_BYTES = 1, 2, 3  # fields of the postscript
_STRIPES, _TYPES = 3, 4  # of the footer
_SUBTYPES: Final = 2  # of a type
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_CHUNK_BYTES: Final = 1 << 23  # a chunk's head has 23 bits for it


def check_orc_footer(stream: Any, name: str) -> None:
    """Refuse a file whose types are too many, too deep, or no tree.

    Args:
        stream: The file; is left at its beginning.
        name: The name of the input.

    Raises:
        LoadError: The footer is damaged, or its types are refused.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(size - 1 - MOST_POSTSCRIPT_BYTES, 0))
    tail = stream.read(1 + MOST_POSTSCRIPT_BYTES)
    try:
        length = tail[-1]
        postscript = dict(_fields(tail[-1 - length : -1]))
        footer_bytes = postscript[_FOOTER_BYTES]
        start = size - 1 - length - footer_bytes
        if start < 0 or footer_bytes > MOST_FOOTER_BYTES:
            raise ValueError(f"a footer of {footer_bytes:,} bytes")
        stream.seek(start)
        chunk_bytes = min(postscript.get(_CHUNK_BYTES, 256 << 10), _MOST_CHUNK_BYTES)
        footer = _decompressed(stream.read(footer_bytes), postscript.get(_COMPRESSION, 0), chunk_bytes)
        types = _types_of(footer, name)
    except LoadError:
        raise
    except Exception as error:  # of the libraries that decompress, too
        raise LoadError(f"{name} is not a whole orc file, or damaged: its footer cannot be read: {error}") from error
    finally:
        stream.seek(0)
    _check_types(types, name)


def _types_of(footer: bytes, name: str) -> list[list[int]]:
    """Return what types each type has in it; more than can be used are not looked at."""
    types: list[list[int]] = []
    stripe_count = 0
    for number, value in _fields(footer):
        if number == _TYPES:
            types.append(_subtypes(value))
            if len(types) > MOST_NODES:
                check_schema(len(types), 0, name)
        elif number == _STRIPES:
            stripe_count += 1
            if stripe_count > MOST_STRIPES:
                raise LoadRefusedError(
                    f"{name} has more than {MOST_STRIPES:,} stripes, which its library finds one by one from the "
                    "first: write larger ones"
                )
    return types


def _check_types(types: list[list[int]], name: str) -> None:
    """Refuse types of which one would be counted too often, from the leaves on."""
    nodes, depths = [1] * len(types), [1] * len(types)
    for place in range(len(types) - 1, -1, -1):
        for inner in types[place]:
            if not place < inner < len(types):
                raise LoadError(f"{name} is damaged: type {place} of its footer has type {inner} in it")
            nodes[place] = min(nodes[place] + nodes[inner], MOST_NODES + 1)
            depths[place] = min(max(depths[place], 1 + depths[inner]), MOST_DEPTH + 2)
    if types:
        check_schema(nodes[0], depths[0] - 1, name)


def _subtypes(data: bytes) -> list[int]:
    found: list[int] = []
    for number, value in _fields(data):
        if number == _SUBTYPES:
            found += [value] if isinstance(value, int) else _varints(value)
    return found


def _varints(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        found.append(value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            count, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            count = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + count > len(data):
            raise ValueError("a field goes beyond its message")
        yield key >> 3, data[at : at + count]
        at += count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number has too many bytes")


def _decompressed(data: bytes, codec: int, chunk_bytes: int) -> bytes:
    """Return what is in the chunks of a part of the file."""
    if codec == 0:
        return data
    decompressor = _DECOMPRESSORS[codec]
    out, at = bytearray(), 0
    while at < len(data):
        head = int.from_bytes(data[at : at + 3], "little")
        at += 3
        chunk = data[at : at + (head >> 1)]
        at += head >> 1
        out += chunk if head & 1 else decompressor(chunk, chunk_bytes)
        if len(out) > MOST_FOOTER_BYTES:
            raise ValueError(f"it has more than {MOST_FOOTER_BYTES:,} bytes when it is decompressed")
    return bytes(out)


def _lz4(data: bytes, limit: int) -> bytes:
    import lz4.block

    return bytes(lz4.block.decompress(data, uncompressed_size=limit))


_DECOMPRESSORS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    1: lambda data, limit: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, limit),
    2: lambda data, limit: bytes(decompress(CODEC_IDS["snappy"], data, limit)),
    4: _lz4,
    5: lambda data, limit: bytes(decompress(CODEC_IDS["zstd"], data, limit)),
}
