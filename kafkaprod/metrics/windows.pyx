"""Windowed statistics: recent values in a ring of samples, and totals.

A `Sample` is a record of sums and maxima, filled for one window; recording is an addition to the current one. Rates and
averages are computed when they are read, from the samples that are not too old.
Source: org.apache.kafka.common.metrics.stats (SampledStat, Rate): a rate counts from the start of the oldest sample,
but never over less than all windows but one, so that it starts low and does not jump.

Compiled, with the sums of `sums`, because a request records into four of them, in code and data that are in no cache when
the kernel has just sent a megabyte.
"""

cimport cython
from libc.stdint cimport int64_t

from kafkaprod.clock import NEVER_MS as _NEVER_MS


cdef class Sample:
    """Sums, and maxima in the fields named `..._max`; all start at 0.

    Attributes:
        NAMES: The fields, a constant of each subclass.
    """

    NAMES = ()

    def add(self, Sample other not None):
        """Add the values of another sample."""
        for name in self.NAMES:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name.endswith("_max") else mine + theirs)


@cython.final
cdef class SampleRing:
    """Samples of one kind over time. One thread records; others may read.

    Args:
        make: Makes an empty sample.
        sample_count: Windows kept.
        window_ms: Length of one.

    Attributes:
        newest: The sample to record into before `end_ms`; from then on `current` has the next one.
        end_ms: When the current window ends.
    """

    def __init__(self, make, Py_ssize_t sample_count, int64_t window_ms):
        self._make = make
        self._sample_count = sample_count
        self._window_ms = window_ms
        self.newest = make()
        self.end_ms = -_NEVER_MS
        # The sum of old samples, and (start, sample) of the others, oldest first. Replaced together: readers see both.
        self._state = (make(), [])

    def current(self, int64_t now_ms):
        """Return the sample to record into now."""
        return self.at(now_ms)

    cdef Sample at(self, int64_t now_ms):
        return self.newest if now_ms < self.end_ms else self._begin_window(now_ms)

    cdef Sample _begin_window(self, int64_t now_ms):
        folded, samples = self._state
        fresh = self._make()
        kept = [*samples, (now_ms, fresh)]
        if len(kept) > self._sample_count:
            total = self._make()
            total.add(folded)
            total.add(kept.pop(0)[1])
            folded = total
        self._state = (folded, kept)
        self.newest = fresh
        self.end_ms = now_ms + self._window_ms
        return fresh

    def recent(self, int64_t now_ms):
        """Return the sum of the windows that are not too old, and the seconds they cover."""
        oldest_ms = now_ms
        recent = self._make()
        for start_ms, sample in self._state[1]:
            if start_ms > now_ms - self._sample_count * self._window_ms:
                oldest_ms = min(oldest_ms, start_ms)
                recent.add(sample)
        covered_ms = max(now_ms - oldest_ms, (self._sample_count - 1) * self._window_ms)
        return recent, max(covered_ms, 1) / 1000

    def total(self):
        """Return the sum of everything recorded."""
        folded, samples = self._state
        total = self._make()
        total.add(folded)
        for _, sample in samples:
            total.add(sample)
        return total
