"""Entries of a journal, of the batches that are due. See journal_pass.pyx."""

from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Batch, Partition
from kafkaprod._core.queues.topic_queues cimport TopicQueues


cdef struct Collected:          # a batch whose entry is in the buffer
    Batch *batch
    int64_t rank
    Py_ssize_t at               # of its entry in the buffer


cdef class JournalPass:
    cdef readonly Accumulator accumulator
    cdef readonly int64_t due_us        # when the next batch is due if nothing else happens
    cdef readonly bint is_cut           # more batches are due
    cdef readonly list strangers        # (topic, partition, topic id, partition count): due, but without a reference
    cdef readonly int64_t next_offset   # behind the entries in the buffer
    cdef readonly int64_t record_count  # of the batches in the buffer
    cdef char *_buffer
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _used
    cdef Collected *_collected
    cdef Py_ssize_t _count
    cdef Py_ssize_t _most
    cdef bint _has_strangers

    cdef int _collect_from(self, TopicQueues topic, int64_t now_us, bint hurry, int32_t mark,
                           Py_ssize_t most_bytes) noexcept nogil
    cdef int _collect_partition(self, Partition *p, int64_t now_us, bint hurry, int32_t mark,
                                Py_ssize_t most_bytes) noexcept nogil
    cdef void _wait_for(self, const Batch *b) noexcept nogil
    cdef bint _reserve(self, Py_ssize_t need) noexcept nogil
