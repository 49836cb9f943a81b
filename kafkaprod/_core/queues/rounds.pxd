"""A round: the next rows of a block, sorted by partition.

The sort is a counting sort, so that rows keep their order within a partition. Rounds are small enough for their rows to
stay in the cache until they are written.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kafkaprod._core.columns.columns cimport ByteColumn, column_get, prefetch_row_bytes
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.queues.batch cimport Partition, prefetch_write_position
from kafkaprod._core.queues.topic_queues cimport FEW_PARTITIONS
from kafkaprod._core.records.murmur2 cimport FastModulo, fast_modulo, partition_for_key
from kafkaprod._core.records.record_view cimport NULL_LENGTH


cdef enum:
    # Rows sorted together: few, so that they stay in the cache, but some for each partition.
    FEWEST_ROWS = 512
    ROWS_A_PARTITION = 32
    MOST_ROWS = 131072
    PREFETCH_STEP = 4           # partitions between prefetching a partition and its batch's write position
    MOST_LINES = 12             # cache lines prefetched ahead of one run


cdef struct Round:
    # Row numbers are relative to `first`.
    Py_ssize_t most_rows
    Py_ssize_t first            # the block's rows from here
    Py_ssize_t end              # up to here
    int32_t at                  # rows written
    bint is_sticky              # they go to the sticky partition, in their own order; else:
    int32_t *placed             # the partition of each
    int32_t *order              # the rows by partition
    int32_t *ends               # where each partition's rows end in that order
    int32_t *groups             # the partitions that have any
    int32_t group_count
    int32_t group               # the one to be written next


cdef inline int round_allocate(Round *round, Py_ssize_t row_count, int32_t partition_count) noexcept nogil:
    """Make room for rounds of a block; -1 without memory. Free it in both cases."""
    cdef Py_ssize_t rows = ROWS_A_PARTITION * partition_count
    if rows < FEWEST_ROWS:
        rows = FEWEST_ROWS
    if rows > MOST_ROWS:
        rows = MOST_ROWS
    if rows > row_count:
        rows = row_count
    cdef Py_ssize_t groups = rows if rows < partition_count else partition_count
    round.most_rows = rows
    round.placed = <int32_t *>malloc(<size_t>rows * sizeof(int32_t) + 1)
    round.order = <int32_t *>malloc(<size_t>rows * sizeof(int32_t) + 1)
    round.ends = <int32_t *>malloc(<size_t>partition_count * sizeof(int32_t))
    round.groups = <int32_t *>malloc(<size_t>groups * sizeof(int32_t) + 1)
    return -1 if round.placed is NULL or round.order is NULL or round.ends is NULL or round.groups is NULL else 0


cdef inline void round_free(Round *round) noexcept nogil:
    free(round.placed)
    free(round.order)
    free(round.ends)
    free(round.groups)
    round.placed = round.order = round.ends = round.groups = NULL


cdef inline int32_t sort_rows(const int32_t *placed, int32_t *ends, int32_t partition_count, int32_t *order,
                              int32_t *groups) noexcept nogil:
    """Sort rows by their partition in `placed`, keeping their order within one. Return how many partitions have rows.

    Args:
        ends: Rows of each partition; becomes where they end in `order`. order: becomes the rows.
        groups: Becomes the partitions that have rows.
    """
    cdef int32_t total = 0
    cdef int32_t group_count = 0
    cdef int32_t count
    cdef int32_t i
    for i in range(partition_count):
        count = ends[i]
        ends[i] = total
        if count > 0:
            total += count
            groups[group_count] = i
            group_count += 1
    for i in range(total):
        order[ends[placed[i]]] = i
        ends[placed[i]] += 1
    return group_count


cdef inline void round_begin_sticky(Round *round, Py_ssize_t row_count) noexcept nogil:
    """Take the next rows, all of which go to the sticky partition."""
    round.first = round.end
    round.at = 0
    round.is_sticky = True
    round.end = min(row_count, round.first + round.most_rows)


cdef inline void round_begin(Round *round, ByteColumn key, ByteColumn value, const int32_t *row_partitions,
                             Py_ssize_t row_count, int32_t partition_count, bint uses_keys) noexcept nogil:
    """Sort the next rows by partition; they are all placed by key or caller, or all go to the sticky one.

    Args: row_partitions: given for each row of the block; -1: by key. uses_keys: else such a row is a sticky one.
    """
    cdef FastModulo modulo = fast_modulo(partition_count)
    cdef int32_t *placed = round.placed
    cdef int32_t *ends = round.ends
    cdef bint is_scattered = partition_count > FEW_PARTITIONS
    cdef bint is_sticky = False
    cdef Py_ssize_t first = round.end
    cdef Py_ssize_t i = first
    cdef Py_ssize_t end = min(row_count, first + round.most_rows)
    cdef int32_t partition
    cdef const char *data = NULL
    cdef Py_ssize_t length = 0
    memset(ends, 0, <size_t>partition_count * sizeof(int32_t))
    while i < end:
        partition = row_partitions[i]
        if partition < 0:
            length = NULL_LENGTH
            if uses_keys:
                column_get(&key, i, &data, &length)
            if length < 0:
                if i > first and not is_sticky:
                    break
                is_sticky = True
                i += 1
                continue
            partition = partition_for_key(data, length, modulo)
        if is_sticky:
            break
        if not is_scattered:
            # Prefetch values now, in memory order; they are written later in partition order.
            prefetch_row_bytes(&value, i)
        placed[i - first] = partition
        ends[partition] += 1
        i += 1
    round.first = first
    round.end = i
    round.at = 0
    round.group = 0
    round.is_sticky = is_sticky
    if not is_sticky:
        round.group_count = sort_rows(placed, ends, partition_count, round.order, round.groups)


cdef inline Py_ssize_t round_next_row(const Round *round) noexcept nogil:
    """Return the block's row that comes next."""
    if round.first + round.at < round.end and not round.is_sticky:
        return round.first + round.order[round.at]
    return round.first + round.at


cdef inline void round_prefetch(const Round *round, Partition **partitions) noexcept nogil:
    """Prefetch for the next partitions: the partition, and a step later the write position of its batch.

    With thousands of partitions nearly every run of rows would wait for each of them, one after the other.
    """
    cdef const int32_t *coming = round.groups + round.group
    cdef int32_t left = round.group_count - round.group
    cdef int32_t rows
    if 2 * PREFETCH_STEP < left:
        prefetch_write(partitions[coming[2 * PREFETCH_STEP]])
    if PREFETCH_STEP < left:
        rows = round.ends[coming[PREFETCH_STEP]] - round.ends[coming[PREFETCH_STEP - 1]]
        prefetch_write_position(partitions[coming[PREFETCH_STEP]], min(MOST_LINES, 2 * rows + 1))
