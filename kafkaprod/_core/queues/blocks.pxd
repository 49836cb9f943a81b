"""A block of records on its way into the accumulator. See blocks.pyx."""

from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Partition
from kafkaprod._core.queues.refused_rows cimport RefusedRows
from kafkaprod._core.queues.rounds cimport Round
from kafkaprod._core.queues.row_runs cimport RowRuns
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.columns.columns cimport Column, Headers
from kafkaprod._core.records.record_view cimport AppendStatus, RecordView


cdef enum:
    ROWS_PER_HOLD = 256         # after which a lock is let go, so that the sender never waits longer than microseconds
    ROWS_AHEAD = 16             # rows between prefetching keys and values and writing them


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
    cdef int32_t _for_all                   # given for every row, or ANY_PARTITION
    cdef object _kept
    cdef int32_t *_row_partitions           # where each row went
    cdef Partition **_partition_array
    cdef int32_t _partition_count
    cdef Round _round                       # the current one
    cdef RowRuns _runs
    cdef RefusedRows _refused

    cdef int _check_rows(self) except -1
    cdef void _fill(self, Py_ssize_t i, RecordView *r) noexcept nogil
    cdef void _begin_round(self) noexcept nogil
    cdef AppendStatus _append_rows(self, int64_t now_ms, int64_t ticket, int *events) noexcept nogil
    cdef AppendStatus _append_run(self, int32_t partition, int32_t run_end, int64_t now_ms, int64_t ticket,
                                  int *events) noexcept nogil
    cdef int32_t _lock_sticky(self, int *events) noexcept nogil
    cdef void _put_back(self, int32_t partition, char *position, int64_t max_timestamp, int32_t record_count,
                        int32_t first_index) noexcept nogil
    cdef int _let_go_of_input(self) except -1
