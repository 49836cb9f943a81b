"""One list of values as a column in each layout that the core reads."""

from __future__ import annotations

import array
import struct
from collections.abc import Sequence

from kafkaprod._core.columns.columns import Column


def bitmap(values: Sequence[bytes | None]) -> bytes:
    out = bytearray((len(values) + 7) // 8)
    for i, value in enumerate(values):
        if value is not None:
            out[i >> 3] |= 1 << (i & 7)
    return bytes(out)


def as_offsets(values: Sequence[bytes | None], code: str = "i") -> Column:
    data = b"".join(value or b"" for value in values)
    offsets = array.array(code, [0])
    for value in values:
        offsets.append(offsets[-1] + len(value or b""))
    return Column.from_offsets(offsets, data, bitmap(values))


def as_views(values: Sequence[bytes | None]) -> Column:
    views = b""
    buffers = [b"", b""]
    for i, value in enumerate(values):
        value = value or b""
        if len(value) <= 12:
            views += struct.pack("<i", len(value)) + value.ljust(12, b"\x00")
        else:
            at = len(buffers[i % 2])
            buffers[i % 2] += value
            views += struct.pack("<i4sii", len(value), value[:4], i % 2, at)
    return Column.from_views(views, buffers, bitmap(values))


def as_list(values: Sequence[bytes | None]) -> Column:
    return Column.from_list(list(values))
