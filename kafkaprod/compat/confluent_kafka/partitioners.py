"""librdkafka's partitioners: the partition of a key, by their names."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any, Final

Choose = Callable[[Any, int], int | None]
"""Makes the partition of a key and the number of partitions; None: the engine's choice for records without a key."""


def consistent(key: Any, partition_count: int) -> int:
    """Return CRC-32 of the key, modulo the number of partitions; null counts as empty."""
    return zlib.crc32(key or b"") % partition_count


def fnv1a(key: Any, partition_count: int) -> int:
    """Return FNV-1a of the key, modulo; as signed and made positive, as in Sarama."""
    value = 0x811C9DC5
    for byte in key or b"":
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return abs(signed) % partition_count


def _at_random(_: Any, partition_count: int) -> int:
    return random.randrange(partition_count)


def _with_key(choose: Callable[[Any, int], int]) -> Choose:
    """Leave records with a null or empty key to the engine."""
    return lambda key, partition_count: choose(key, partition_count) if key else None


PARTITIONERS: Final[dict[str, Choose | None]] = {
    "consistent": consistent,
    "consistent_random": _with_key(consistent),
    "fnv1a": fnv1a,
    "fnv1a_random": lambda key, count: None if key is None else fnv1a(key, count),
    "random": _at_random,
    "murmur2": None,
    "murmur2_random": None,
}
"""By name; None: the engine's own choice, murmur2 of the key and sticky for null."""
