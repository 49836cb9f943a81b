"""The built-in sticky choice of a partition for records without a key (KIP-480, KIP-794).

One object per topic. The accumulator draws the next partition when the batch in the current one was taken or is
full; the sender feeds it the queue lengths, so that slow partitions are drawn less often. Thread-safe.
Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner.
"""

cimport cython
from libc.stdlib cimport free, malloc

from kafkaprod._core.machine.lock cimport load32, mutex_lock, mutex_unlock, publish32

from kafkaprod.errors import InvalidRecordError


@cython.final
cdef class StickyPartitioner:
    """Draws partitions for one topic.

    Args:
        partition_count: Partitions of the topic.
        seed: The seed of the random draw; any integer.
        candidates: Partitions to draw from until set_loads() is called; None: all.
    """

    def __cinit__(self, int32_t partition_count, uint64_t seed=1, candidates=None):
        if partition_count < 1:
            raise InvalidRecordError(f"partition_count must be at least 1, not {partition_count}")
        self._random = seed * <uint64_t>0x9E3779B97F4A7C15U + 1
        self.set_loads(range(partition_count) if candidates is None else candidates)
        self._current = self.draw()

    def __dealloc__(self):
        free(self._candidates)
        free(self._cumulative)

    cdef uint64_t _next_random(self) noexcept nogil:
        # splitmix64: every state is good, so any seed is.
        self._random += <uint64_t>0x9E3779B97F4A7C15
        cdef uint64_t z = self._random
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        return z ^ (z >> 31)

    cdef int32_t draw(self) noexcept nogil:
        """Draw the next partition: weighted if loads are known, else uniform over the candidates."""
        cdef int32_t low = 0
        cdef int32_t high
        cdef int32_t middle
        cdef int64_t point
        mutex_lock(&self._lock)
        high = self._candidate_count - 1
        if self._cumulative[high] == 0:
            low = <int32_t>(self._next_random() % <uint64_t>self._candidate_count)
        else:
            point = <int64_t>(self._next_random() % <uint64_t>self._cumulative[high])
            while low < high:
                middle = (low + high) // 2
                if self._cumulative[middle] > point:
                    high = middle
                else:
                    low = middle + 1
        cdef int32_t chosen = self._candidates[low]
        mutex_unlock(&self._lock)
        return chosen

    def set_loads(self, candidates, queue_lengths=None):
        """Set the partitions to draw from, and how many batches wait in each.

        Args:
            candidates: Partition numbers, at least one.
            queue_lengths: As many batch counts; None, or all equal, draws uniformly. A partition's weight is
                (longest queue + 1) - its queue.
        """
        cdef list partitions = list(candidates)
        cdef list queues = [0] * len(partitions) if queue_lengths is None else list(queue_lengths)
        if not partitions or len(queues) != len(partitions):
            raise InvalidRecordError(
                f"need as many queue lengths as candidates, at least one: {len(queues)}, {len(partitions)}"
            )
        cdef int64_t longest = max(queues)
        cdef bint is_uniform = longest == min(queues)
        cdef int64_t total = 0
        cdef int32_t count = <int32_t>len(partitions)
        cdef int32_t i
        cdef int32_t *new_candidates = <int32_t *>malloc(count * sizeof(int32_t))
        cdef int64_t *new_cumulative = <int64_t *>malloc(count * sizeof(int64_t))
        if new_candidates is NULL or new_cumulative is NULL:
            free(new_candidates)
            free(new_cumulative)
            raise MemoryError
        try:
            for i in range(count):
                new_candidates[i] = partitions[i]
                if not is_uniform:
                    total += longest + 1 - <int64_t>queues[i]
                new_cumulative[i] = total
        except BaseException:
            free(new_candidates)
            free(new_cumulative)
            raise
        mutex_lock(&self._lock)
        new_candidates, self._candidates = self._candidates, new_candidates
        new_cumulative, self._cumulative = self._cumulative, new_cumulative
        self._candidate_count = count
        mutex_unlock(&self._lock)
        free(new_candidates)
        free(new_cumulative)

    @property
    def current(self):
        """The partition that records without a key go to now."""
        return load32(&self._current)

    def next(self):
        """Draw and make current the next partition; return it. The accumulator does this by itself."""
        publish32(&self._current, self.draw())
        return self.current
