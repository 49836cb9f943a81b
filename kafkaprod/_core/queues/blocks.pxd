"""A block of records on its way into the accumulator. See blocks.pyx."""

from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Batch, OpenBatch, Partition
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.columns.columns cimport Column, Headers
from kafkaprod._core.records.record_view cimport AppendStatus, RecordView


cdef enum:
    # Rows sorted by partition together: few, so that they stay in the cache, but some for each partition.
    FEWEST_ROWS = 512
    ROWS_A_PARTITION = 32
    MOST_ROWS = 131072
    ROWS_PER_HOLD = 256         # after which a lock is let go, so that the sender never waits longer than microseconds
    PREFETCH_STEP = 4           # partitions between prefetching a partition and its batch's write position
    MOST_LINES = 12             # cache lines prefetched ahead of one run
    ROWS_AHEAD = 16             # rows between prefetching keys and values and writing them


cdef struct RowRun:
    # Rows of one partition that are next to each other in one batch.
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
    cdef int32_t _for_all                   # given for every row, or ANY_PARTITION
    cdef object _kept
    cdef int32_t *_row_partitions           # where each row went
    cdef Partition **_partition_array
    cdef int32_t _partition_count
    cdef int32_t *_last_runs            # index of each partition's newest run, -1: none
    # State of the current round; row numbers are relative to its first row.
    cdef Py_ssize_t _round_rows             # at most
    cdef Py_ssize_t _round_first            # the block's rows from here
    cdef Py_ssize_t _round_end              # up to here
    cdef bint _is_sticky                    # they go to the sticky partition, in their own order; else:
    cdef int32_t *_placed                   # the partition of each
    cdef int32_t *_order                    # the rows by partition
    cdef int32_t *_ends                     # where each partition's rows end in that order
    cdef int32_t *_groups                   # the partitions that have any
    cdef int32_t _group_count
    cdef int32_t _group                     # the one to be written next
    cdef int32_t _at                        # rows written
    cdef RowRun *_runs
    cdef Py_ssize_t _run_count
    cdef Py_ssize_t _run_capacity

    cdef int _check_rows(self) except -1
    cdef void _fill(self, Py_ssize_t i, RecordView *r) noexcept nogil
    cdef void _begin_round(self) noexcept nogil
    cdef void _free_round(self) noexcept
    cdef void _prefetch_ahead(self) noexcept nogil
    cdef AppendStatus _append_rows(self, int64_t now_ms, int64_t ticket, int *events) noexcept nogil
    cdef AppendStatus _append_run(self, int32_t partition, int32_t run_end, int64_t now_ms, int64_t ticket,
                                  int *events) noexcept nogil
    cdef int32_t _lock_sticky(self, int *events) noexcept nogil
    cdef void _put_back(self, int32_t partition, char *position, int64_t max_timestamp, int32_t record_count,
                        int32_t first_index) noexcept nogil
    cdef int _reserve_runs(self) noexcept nogil
    cdef int _let_go_of_input(self) except -1
