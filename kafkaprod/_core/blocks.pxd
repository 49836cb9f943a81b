"""A block of records on its way into the accumulator. See blocks.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkaprod._core.accumulator cimport Accumulator, TopicQueues
from kafkaprod._core.batch cimport Batch, Partition
from kafkaprod._core.columns cimport Column, Headers
from kafkaprod._core.record_view cimport AppendStatus, RecordView


cdef enum:
    # Rows after which held locks are let go, so that the sender is never kept waiting longer than some microseconds.
    ROWS_PER_HOLD = 256
    MOST_HELD = 512             # a row of a sticky block may touch a partition or two more
    ROWS_PREPARED = 16          # rows whose memory is fetched ahead of the append
    FEW_PARTITIONS = 64         # with no more than these everything is in the cache anyway


cdef struct Slot:
    # What the block knows of one partition.
    int32_t last_segment        # index of its newest segment, -1: none
    uint8_t is_held             # the block holds the partition's lock


cdef struct Segment:
    # Rows of one partition that stand next to each other in one batch.
    Batch *batch                # a reference
    int32_t partition
    int32_t first_index
    int64_t count


cdef class Block:
    cdef Accumulator accumulator
    cdef TopicQueues topic
    cdef Column _key
    cdef Column _value
    cdef Headers _headers
    cdef readonly Py_ssize_t row_count
    cdef readonly Py_ssize_t rows_appended
    cdef const int64_t *_timestamps         # per row, or NULL
    cdef int64_t _timestamp                 # for every row
    cdef const int32_t *_partitions         # given per row, or NULL
    cdef object _kept
    cdef int32_t *_row_partitions           # where each row went
    cdef Slot *_slots
    cdef Partition **_partition_array
    cdef int32_t _partition_count
    cdef Partition **_held
    cdef int32_t _held_count
    cdef Segment *_segments
    cdef Py_ssize_t _segment_count
    cdef Py_ssize_t _segment_capacity
    cdef Py_ssize_t _published_segments
    cdef list _results

    cdef int _check_rows(self) except -1
    cdef void _fill(self, Py_ssize_t i, RecordView *r) noexcept nogil
    cdef void _hold(self, int32_t partition) noexcept nogil
    cdef void _let_go(self) noexcept nogil
    cdef void _prepare(self, Py_ssize_t first, Py_ssize_t end) noexcept nogil
    cdef AppendStatus _append_rows(self, int64_t now_ms, int64_t ticket, int *events) noexcept nogil
    cdef int32_t _choose_sticky(self, const RecordView *r, int *events) noexcept nogil
    cdef int _reserve_segment(self) noexcept nogil
    cdef void _note(self, int32_t partition, Batch *b) noexcept nogil
    cdef int _publish_segments(self) except -1
