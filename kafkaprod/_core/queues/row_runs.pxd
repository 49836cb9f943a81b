"""Where the rows of a block are: runs of rows next to each other in one batch."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from kafkaprod._core.queues.batch cimport Batch, OpenBatch, batch_hold


cdef struct RowRun:
    Batch *batch                # a reference
    int32_t partition
    int32_t first_index
    int64_t count


cdef struct RowRuns:
    RowRun *items
    Py_ssize_t count
    Py_ssize_t capacity
    int32_t *last               # index of each partition's newest run, -1: none


cdef inline int runs_allocate(RowRuns *runs, int32_t partition_count) noexcept nogil:
    """Return -1 without memory."""
    runs.last = <int32_t *>malloc(<size_t>partition_count * sizeof(int32_t))
    if runs.last is NULL:
        return -1
    memset(runs.last, 0xFF, <size_t>partition_count * sizeof(int32_t))
    return 0


cdef inline int runs_reserve(RowRuns *runs) noexcept nogil:
    """Make room for two more runs; -1 without memory for that. Records are written only once it is there."""
    cdef RowRun *grown
    cdef Py_ssize_t capacity
    if runs.count + 2 <= runs.capacity:
        return 0
    capacity = 2 * runs.capacity + 16
    grown = <RowRun *>realloc(runs.items, <size_t>capacity * sizeof(RowRun))
    if grown is NULL:
        return -1
    runs.items = grown
    runs.capacity = capacity
    return 0


cdef inline void runs_add(RowRuns *runs, OpenBatch *o, int32_t partition, int32_t first_index,
                          int32_t record_count) noexcept nogil:
    """Remember that the records of the open batch from `first_index` on are the block's. Needs runs_reserve()."""
    cdef RowRun *run
    if runs.last[partition] >= 0:
        run = &runs.items[runs.last[partition]]
        if run.batch == o.batch and run.first_index + run.count == first_index:
            run.count = record_count - run.first_index
            return
    run = &runs.items[runs.count]
    run.batch = o.batch
    batch_hold(o)
    run.partition = partition
    run.first_index = first_index
    run.count = record_count - first_index
    runs.last[partition] = <int32_t>runs.count
    runs.count += 1


cdef inline void runs_free_last(RowRuns *runs) noexcept nogil:
    """Free what only appends need."""
    free(runs.last)
    runs.last = NULL
