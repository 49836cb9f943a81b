"""Python faces of the core's C functions, from `tests/native/core_faces.pyx`: no program needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from typing_extensions import Buffer

from tests.native.building import load

_built = load("core_faces")

hash_key: Callable[[Buffer], int] = _built.hash_key
partition_of_key: Callable[[Buffer, int], int] = _built.partition_of_key
encode_varint: Callable[[int], bytes] = _built.encode_varint
size_of_varint: Callable[[int], int] = _built.size_of_varint
decode_varint: Callable[..., tuple[int, int]] = _built.decode_varint
checksum_by_table: Callable[..., int] = _built.checksum_by_table
unfolded_checksum: Callable[..., int] = _built.unfolded_checksum
joined_checksum: Callable[[int, int, int], int] = _built.joined_checksum
float_text: Callable[[float], str] = _built.float_text
float32_text: Callable[[float], str] = _built.float32_text
decimal_text: Callable[[bytes, int], str] = _built.decimal_text
read_monotonic_us: Callable[[], int] = _built.read_monotonic_us
take_wakeup: Callable[[Any, Buffer], None] = _built.take_wakeup
SlabLease: Any = _built.SlabLease

Headers = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]] | None


def encode_record(
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
    timestamp_delta: int = 0,
    offset_delta: int = 0,
) -> bytes:
    """Return one record's bytes as in an uncompressed batch, without the batch's header."""
    encoded: bytes = _built.encode_record(key, value, headers, timestamp_delta, offset_delta)
    return encoded


def size_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """Return the upper bound of a record's size in any batch, in bytes."""
    bound: int = _built.size_bound(key, value, headers)
    return bound
