"""Metrics as bytes of OpenTelemetry's protocol: the message MetricsData of opentelemetry/proto/metrics/v1.

Only what KIP-714 needs: numbers with attributes, as gauges and as sums that never go back. The wire format is
protobuf's: each field is a tag (number << 3 | kind), then a varint, 8 bytes, or a length and bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2

DELTA: Final = 1
CUMULATIVE: Final = 2


class NumberDataPoint(NamedTuple):
    """A value of a metric.

    Attributes:
        attributes: What it is of, such as {"topic": "orders"}.
        value: The number.
    """

    attributes: Mapping[str, str]
    value: float


class Metric(NamedTuple):
    """Values under one name.

    Attributes:
        name: With dots.
        is_total: Whether it is a sum that never goes back; otherwise it is a gauge.
        points: At least one.
    """

    name: str
    is_total: bool
    points: list[NumberDataPoint]


def metrics_data(
    metrics: Iterable[Metric],
    resource: Mapping[str, str],
    scope: tuple[str, str],
    *,
    start_ns: int,
    now_ns: int,
    is_delta: bool,
) -> bytes:
    """Return a MetricsData message.

    Args:
        metrics: What was measured; of delta sums the values are the differences.
        resource: Attributes of all metrics.
        scope: Name and version of what measured.
        start_ns: Since when sums count, epoch time.
        now_ns: When they were read, epoch time.
        is_delta: Whether sums are differences since `start_ns`, or counted from the start of the program.
    """
    temporality = DELTA if is_delta else CUMULATIVE
    sum_end = _varint_field(2, temporality) + _varint_field(3, 1)  # is_monotonic
    times = struct.pack("<BQBQ", 2 << 3 | _FIXED64, start_ns, 3 << 3 | _FIXED64, now_ns)
    parts = [_field(1, _field(1, scope[0].encode()) + _field(2, scope[1].encode()))]
    for name, is_total, points in metrics:
        numbers = b"".join(
            [
                _field(1, times + struct.pack("<Bd", 4 << 3 | _FIXED64, value) + _attributes(7, attributes))
                for attributes, value in points
            ]
        )
        data = _field(7, numbers + sum_end) if is_total else _field(5, numbers)
        parts.append(_field(2, _field(1, name.encode()) + data))
    return _field(1, _field(1, _attributes(1, resource)) + _field(2, b"".join(parts)))


def _attributes(number: int, attributes: Mapping[str, str]) -> bytes:
    return b"".join(
        [
            _field(number, _field(1, name.encode()) + _field(2, _field(1, value.encode("utf-8", "replace"))))
            for name, value in attributes.items()
        ]
    )


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | _BYTES,)) + _varint(len(content)) + content


def _varint_field(number: int, value: int) -> bytes:
    return bytes((number << 3 | _VARINT,)) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
