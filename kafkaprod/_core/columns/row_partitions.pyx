"""Choose the partition of each row of a column, count rows by partition and by size, add up the sizes of rows.

The choice depends on the row alone, so a second reading of the same input gives the same answer. Any thread; the loops
hold no GIL.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from kafkaprod._core.columns.columns cimport Column, column_get
from kafkaprod._core.machine.lock cimport load_i32
from kafkaprod._core.records.murmur2 cimport FastModulo, fast_modulo, partition_for_key
from kafkaprod._core.records.varint cimport clzll

from kafkaprod.errors import InvalidRecordError


cdef void choose_partitions(Column keys, Py_ssize_t count, int32_t partition_count, int32_t *out) noexcept nogil:
    cdef const char *key = NULL
    cdef Py_ssize_t length
    cdef Py_ssize_t i
    cdef FastModulo modulo = fast_modulo(partition_count)
    for i in range(count):
        column_get(&keys.c, i, &key, &length)
        if length >= 0:
            out[i] = partition_for_key(key, length, modulo)


def partitions_of_keys(Column keys not None, int32_t partition_count, int32_t[::1] partitions not None):
    """Write the partition that Kafka's default partitioner gives each key; where a key is null, nothing is written.

    Raises InvalidRecordError if partition_count < 1 or there are fewer keys than partitions to write.
    """
    cdef Py_ssize_t count = partitions.shape[0]
    if partition_count < 1:
        raise InvalidRecordError(f"partition_count must be at least 1, not {partition_count}")
    if 0 <= keys.row_count < count:
        raise InvalidRecordError(f"{keys.row_count} keys for {count} partitions")
    cdef int32_t *out
    if count > 0:
        out = &partitions[0]
        with nogil:
            choose_partitions(keys, count, partition_count, out)


cdef void choose_runs(const int64_t *numbers, Py_ssize_t count, int64_t rows_before, int64_t run_rows,
                      int32_t partition_count, int32_t *out) noexcept nogil:
    cdef int64_t first = 0
    cdef int64_t end = 0            # of the run that the row before is in
    cdef int64_t row
    cdef int32_t partition = 0
    cdef Py_ssize_t i
    for i in range(count):
        row = <int64_t>(<uint64_t>numbers[i] + <uint64_t>rows_before)    # wraps instead of being undefined
        if row < 0:
            row = 0
        if row >= end or row < first:
            first = row - row % run_rows
            end = first + min(run_rows, INT64_MAX - first)
            partition = <int32_t>(first // run_rows % partition_count)
        out[i] = partition


def partitions_of_runs(const int64_t[::1] numbers not None, int64_t rows_before, int64_t run_rows,
                       int32_t partition_count, int32_t[::1] partitions not None):
    """Write the partition of each row where `run_rows` rows in a row go to one partition, the next ones to the next.

    Args: numbers: of the rows, from 0. rows_before: added to each. partitions: as many as numbers; are written.
    Raises InvalidRecordError for fewer numbers than partitions, and where run_rows or partition_count is less than 1.
    """
    cdef Py_ssize_t count = partitions.shape[0]
    if run_rows < 1 or partition_count < 1:
        raise InvalidRecordError(f"runs of {run_rows} rows over {partition_count} partitions: both must be at least 1")
    if numbers.shape[0] < count:
        raise InvalidRecordError(f"{numbers.shape[0]} row numbers for {count} partitions")
    cdef const int64_t *rows
    cdef int32_t *out
    if count > 0:
        rows = &numbers[0]
        out = &partitions[0]
        with nogil:
            choose_runs(rows, count, rows_before, run_rows, partition_count, out)


cdef bint add_counts(const int32_t *partitions, Py_ssize_t row_count, int64_t *counts, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    cdef int32_t partition
    for i in range(row_count):
        partition = load_i32(&partitions[i])        # once: other threads may write to the array
        if partition < 0 or partition >= count:
            return False
        counts[partition] = <int64_t>(<uint64_t>counts[partition] + 1)
    return True


def count_partitions(const int32_t[::1] partitions not None, int64_t[::1] counts not None):
    """Add the rows of each partition to `counts`. Raises InvalidRecordError for a partition that has no place there."""
    cdef bint is_good = True
    cdef const int32_t *given
    cdef int64_t *sums
    if partitions.shape[0] > 0:
        if counts.shape[0] == 0:
            raise InvalidRecordError("no place for the counts")
        given = &partitions[0]
        sums = &counts[0]
        with nogil:
            is_good = add_counts(given, partitions.shape[0], sums, counts.shape[0])
    if not is_good:
        raise InvalidRecordError(f"a partition is outside 0..{counts.shape[0] - 1}")


cdef void add_lengths(Column column, Py_ssize_t count, int64_t *sizes) noexcept nogil:
    cdef const char *data = NULL
    cdef Py_ssize_t length
    cdef Py_ssize_t i
    for i in range(count):
        column_get(&column.c, i, &data, &length)
        if length > 0:
            sizes[i] = <int64_t>(<uint64_t>sizes[i] + <uint64_t>length)


def add_sizes(Column column not None, int64_t[::1] sizes not None):
    """Add the bytes of each row to `sizes`; a null has none. Raises InvalidRecordError if there are fewer rows."""
    cdef Py_ssize_t count = sizes.shape[0]
    if 0 <= column.row_count < count:
        raise InvalidRecordError(f"{column.row_count} rows for {count} sizes")
    cdef int64_t *sums
    if count > 0:
        sums = &sizes[0]
        with nogil:
            add_lengths(column, count, sums)


cdef void add_size_counts(const int64_t *sizes, Py_ssize_t row_count, int64_t *counts, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    cdef Py_ssize_t bits
    cdef int64_t size
    for i in range(row_count):
        size = sizes[i]
        bits = 64 - clzll(<uint64_t>size) if size > 0 else 0
        bits = min(bits, count - 1)
        counts[bits] = <int64_t>(<uint64_t>counts[bits] + 1)


def count_sizes(const int64_t[::1] sizes not None, int64_t[::1] counts not None):
    """Add to counts[n] the rows whose size has n bits, so is less than 2**n; to the last one those with more bits.

    A size below 1 has no bits. Raises InvalidRecordError for no counts.
    """
    cdef const int64_t *given
    cdef int64_t *sums
    if counts.shape[0] == 0:
        raise InvalidRecordError("no place for the counts")
    if sizes.shape[0] > 0:
        given = &sizes[0]
        sums = &counts[0]
        with nogil:
            add_size_counts(given, sizes.shape[0], sums, counts.shape[0])
