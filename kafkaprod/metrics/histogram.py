"""Latency histograms: log-linear buckets, one list increment per value.

Values below 64 have a bucket each; above, each power of two is cut into 32 buckets, so a percentile is at most 1/32
(3.1 %) above the true value. 1,024 buckets reach 2^36 us, 19 hours.
Source: the bucket layout of HdrHistogram (G. Tene), with 5 bits of precision.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Final

_PRECISION_BITS: Final = 5
_SUB_BUCKETS: Final = 1 << _PRECISION_BITS
BUCKET_COUNT: Final = 1024
MAX_VALUE: Final = (1 << (BUCKET_COUNT // _SUB_BUCKETS + _PRECISION_BITS - 1)) - 1


def bucket_of(value: int) -> int:
    """Return the bucket of a value in [0, MAX_VALUE]."""
    if value < 2 * _SUB_BUCKETS:
        return value
    shift = value.bit_length() - _PRECISION_BITS - 1
    return (shift << _PRECISION_BITS) + (value >> shift)


def highest_of(bucket: int) -> int:
    """Return the highest value of a bucket."""
    if bucket < 2 * _SUB_BUCKETS:
        return bucket
    shift = (bucket >> _PRECISION_BITS) - 1
    return (((bucket & (_SUB_BUCKETS - 1)) + _SUB_BUCKETS + 1) << shift) - 1


class LatencyHistogram:
    """Counts values. One thread records; others may read at any time.

    Attributes:
        count: Values recorded.
        total: Their sum.
        highest: The largest.
    """

    __slots__ = ("_counts", "count", "highest", "total")

    def __init__(self) -> None:
        self._counts = [0] * BUCKET_COUNT
        self.count = 0
        self.total = 0
        self.highest = 0

    def record(self, value: int, count: int = 1) -> None:
        """Count a value `count` times; negative ones count as 0, larger ones as MAX_VALUE."""
        if not 0 <= value <= MAX_VALUE:
            value = 0 if value < 0 else MAX_VALUE
        # As `bucket_of`, which would be a call for each stage of each request.
        shift = value.bit_length() - _PRECISION_BITS - 1
        self._counts[value if shift <= 0 else (shift << _PRECISION_BITS) + (value >> shift)] += count
        self.count += count
        self.total += value * count
        if value > self.highest:
            self.highest = value

    def record_all(self, values: Sequence[tuple[int, int]], scale: int) -> None:
        """Count pairs of a value and how often it occurs; each value is multiplied by `scale`."""
        if len(values) == 1:
            self.record(values[0][0] * scale, values[0][1])
            return
        counts = self._counts
        for value, count in values:
            value = min(max(value * scale, 0), MAX_VALUE)
            shift = value.bit_length() - _PRECISION_BITS - 1
            counts[value if shift <= 0 else (shift << _PRECISION_BITS) + (value >> shift)] += count
            self.count += count
            self.total += value * count
            if value > self.highest:
                self.highest = value

    @property
    def mean(self) -> float:
        """The average; 0.0 without values."""
        return self.total / self.count if self.count else 0.0

    def percentiles(self, shares: Sequence[float]) -> list[int]:
        """Return for each share in [0, 1] a value that this share of all values does not exceed; 0 without values."""
        sums = list(itertools.accumulate(self._counts))
        if not sums[-1]:
            return [0] * len(shares)
        ranks = (max(1, round(share * sums[-1])) for share in shares)
        return [min(highest_of(bisect.bisect_left(sums, rank)), self.highest) for rank in ranks]

    def counts_up_to(self, bounds: Sequence[int]) -> list[int]:
        """Return for each bound how many values are within it, exact for bounds that are a bucket's highest value."""
        sums = list(itertools.accumulate(self._counts, initial=0))
        return [sums[bucket_of(min(bound, MAX_VALUE)) + 1] for bound in bounds]
