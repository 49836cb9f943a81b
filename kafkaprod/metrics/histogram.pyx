"""Latency histograms: log-linear buckets, one increment per value.

Values below 64 have a bucket each; above, each power of two is cut into 32 buckets, so a percentile is at most 1/32
(3.1 %) above the true value. 1,024 buckets reach 2^36 us, 19 hours.
Source: the bucket layout of HdrHistogram (G. Tene), with 5 bits of precision.

Compiled, because a request records into four of them: as a list of Python's integers each bucket is an object somewhere
else in memory, which is in no cache when the kernel has just sent a megabyte.
"""

cimport cython
from libc.stdint cimport int64_t

import bisect
import itertools

cdef enum:
    PRECISION_BITS = 5
    SUB_BUCKETS = 32        # 1 << PRECISION_BITS

cdef int64_t _max_value = (<int64_t>1 << (BUCKETS // SUB_BUCKETS + PRECISION_BITS - 1)) - 1

BUCKET_COUNT = BUCKETS
MAX_VALUE = _max_value


cdef inline Py_ssize_t _bucket(int64_t value) noexcept nogil:
    cdef int shift = 0
    while value >> shift >= 2 * SUB_BUCKETS:
        shift += 1
    return (shift << PRECISION_BITS) + <Py_ssize_t>(value >> shift)


def bucket_of(int64_t value):
    """Return the bucket of a value in [0, MAX_VALUE]."""
    return _bucket(value)


def highest_of(Py_ssize_t bucket):
    """Return the highest value of a bucket."""
    cdef int shift
    if bucket < 2 * SUB_BUCKETS:
        return bucket
    shift = <int>(bucket >> PRECISION_BITS) - 1
    return ((<int64_t>(bucket & (SUB_BUCKETS - 1)) + SUB_BUCKETS + 1) << shift) - 1


@cython.final
cdef class LatencyHistogram:
    """Counts values. One thread records; others may read at any time.

    Attributes:
        count: Values recorded.
        total: Their sum.
        highest: The largest.
    """

    cdef void add(self, int64_t value, int64_t count) noexcept nogil:
        value = min(max(value, 0), _max_value)
        self._counts[_bucket(value)] += count
        self.count += count
        self.total += value * count
        self.highest = max(self.highest, value)

    def record(self, int64_t value, int64_t count=1):
        """Count a value `count` times; negative ones count as 0, larger ones as MAX_VALUE."""
        self.add(value, count)

    @property
    def mean(self):
        """The average; 0.0 without values."""
        return <double>self.total / self.count if self.count else 0.0

    cdef list _all_counts(self):
        cdef Py_ssize_t i
        return [self._counts[i] for i in range(BUCKETS)]

    def percentiles(self, shares not None):
        """Return for each share in [0, 1] a value that this share of all values does not exceed; 0 without values."""
        sums = list(itertools.accumulate(self._all_counts()))
        recorded = sums[BUCKETS - 1]
        if not recorded:
            return [0] * len(shares)
        ranks = [max(1, round(share * recorded)) for share in shares]
        return [min(highest_of(bisect.bisect_left(sums, rank)), self.highest) for rank in ranks]

    def counts_up_to(self, bounds not None):
        """Return for each bound how many values are within it, exact for bounds that are a bucket's highest value."""
        sums = list(itertools.accumulate(self._all_counts(), initial=0))
        return [sums[bucket_of(min(bound, MAX_VALUE)) + 1] for bound in bounds]
