"""The rows of a block that are left out, because the node that leads their partitions may hold no more.

Once a row of a partition is left out, so are those behind it: they are the last ones of their partition.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc

from kafkaprod._core.machine.lock cimport mutex_lock, mutex_unlock
from kafkaprod._core.queues.batch cimport Partition
from kafkaprod._core.queues.rounds cimport Round


cdef struct RefusedRows:
    # Zeroed: nothing is refused.
    Py_ssize_t count
    Py_ssize_t *rows            # of the block
    char *partitions            # whether its rows are left out; NULL: of none


cdef inline int refused_reserve(RefusedRows *refused, Py_ssize_t row_count, int32_t partition_count) noexcept nogil:
    """Make room for all rows of a block; -1 without memory. Free it in both cases."""
    if refused.rows is NULL:
        refused.rows = <Py_ssize_t *>malloc(<size_t>row_count * sizeof(Py_ssize_t) + 1)
    if refused.partitions is NULL:
        refused.partitions = <char *>calloc(<size_t>partition_count, 1)
    return -1 if refused.rows is NULL or refused.partitions is NULL else 0


cdef inline void refused_free(RefusedRows *refused) noexcept nogil:
    free(refused.rows)
    free(refused.partitions)


cdef inline bint refuse_led_by(RefusedRows *refused, int32_t node_id, Partition **partitions,
                               int32_t partition_count) noexcept nogil:
    """Leave out rows for partitions that a node leads now, from now on; return whether one is new."""
    cdef int32_t i
    cdef bint is_led
    cdef bint is_new = False
    for i in range(partition_count):
        mutex_lock(&partitions[i].lock)
        is_led = partitions[i].leader == node_id
        mutex_unlock(&partitions[i].lock)
        if is_led and not refused.partitions[i]:
            refused.partitions[i] = is_new = True
    return is_new


cdef inline void refuse_run(RefusedRows *refused, Round *round, int32_t partition,
                            int32_t *row_partitions) noexcept nogil:
    """Leave out the rows of the round for a partition."""
    cdef Py_ssize_t row
    while round.at < round.ends[partition]:
        row = round.first + round.order[round.at]
        row_partitions[row] = partition
        refused.rows[refused.count] = row
        refused.count += 1
        round.at += 1
    round.group += 1
