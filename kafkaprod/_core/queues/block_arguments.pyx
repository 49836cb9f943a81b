"""What is given to a block for all its rows or for each: lengths that agree, arrays of integers, values within bounds."""

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t

from kafkaprod._core.machine.lock cimport load_i32
from kafkaprod._core.queues.accumulator cimport ANY_PARTITION
from kafkaprod._core.records.integers cimport to_int64

import array
import sys

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError

cdef int64_t MOST_ROWS_WITHOUT_COLUMN = 0x1000000
cdef int64_t MOST_BLOCK_ROWS = 0x10000000000     # sizes of arrays of rows stay far from overflow


cdef int check_timestamps(const int64_t *timestamps, Py_ssize_t row_count) except -1:
    """Raise InvalidRecordError, naming the row, if a timestamp is neither a time nor -1."""
    cdef Py_ssize_t i
    for i in range(row_count):
        if timestamps[i] < -1:
            raise InvalidRecordError(f"timestamps[{i}]={timestamps[i]} must be at least 0, or -1 for none")
    return 0


cdef int take_partitions(const int32_t *partitions, Py_ssize_t row_count, str topic, int32_t partition_count,
                         int32_t *taken) except -1:
    """Copy the partitions of the rows to `taken`. Raise InvalidRecordError, naming the row, if the topic has no such one."""
    cdef Py_ssize_t i
    cdef int32_t partition
    for i in range(row_count):
        partition = load_i32(&partitions[i])        # once: other threads may write to the array
        if not ANY_PARTITION <= partition < partition_count:
            raise InvalidRecordError(
                f"partitions[{i}]={partition} of topic {topic!r} is outside 0..{partition_count - 1}"
            )
        taken[i] = partition
    return 0


cdef object int_array(object source, str name, str code, Py_ssize_t row_count):
    """Return `source` as a one-dimensional buffer of int32 or int64, by `code`; None stays None.

    A buffer of such items is used as it is; other integers are copied, and checked one by one.
    """
    if source is None:
        return None
    size = 8 if code == "q" else 4
    items = source
    if not isinstance(source, (list, tuple)):
        try:
            view = memoryview(source)
        except (TypeError, ValueError, BufferError) as error:       # NumPy says ValueError, of datetime64
            raise ArgumentTypeError(
                f"{name} must be an int{size * 8} array or a list of int, not {type(source).__name__}: {error}"
            ) from None
        if view.ndim != 1:
            raise InvalidRecordError(f"{name} must have one dimension, not {view.ndim}")
        format = view.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">"))
        if format not in tuple("bhilqnBHILQN"):
            raise InvalidRecordError(f"{name} must be int{size * 8}, not items of format {view.format!r}")
        if view.itemsize == size and view.c_contiguous and format in tuple("ilqn"):
            items = view.cast("B").cast(code)
        else:
            items = _native_items(view, format)
    if len(items) != row_count:
        raise InvalidRecordError(f"{name} has {len(items)} rows, the block {row_count}")
    return items if isinstance(items, memoryview) else _checked_items(items, name, code)


cdef list _native_items(object view, str format):
    """Return the items of a view of integers as a list; memoryview itself reads no format with a byte order."""
    return memoryview(view.tobytes()).cast(format).tolist()


cdef object _checked_items(object items, str name, str code):
    """Return integers as an array of native `code`. Raises InvalidRecordError naming the row."""
    cdef int64_t lowest = INT64_MIN if code == "q" else INT32_MIN
    cdef int64_t highest = INT64_MAX if code == "q" else INT32_MAX
    out = array.array(code)
    for i, item in enumerate(items):
        try:
            out.append(to_int64(item, name, lowest, highest))
        except InvalidRecordError as error:
            raise type(error)(f"{name}[{i}]: {error}") from None
    return out


cdef Py_ssize_t agree(list columns, object row_count) except -1:
    """Return the number of rows that all columns with a length have."""
    count = None if row_count is None else to_int64(row_count, "row_count", 0, MOST_BLOCK_ROWS)
    owner = "row_count"
    for name, rows in columns:
        if rows < 0:
            continue
        if count is None:
            count, owner = rows, name
        elif rows != count:
            raise InvalidRecordError(f"{name} has {rows} rows, {owner} {count}")
    if count is None:
        raise InvalidRecordError("row_count is needed where no column has a length of its own")
    if owner == "row_count" and count > MOST_ROWS_WITHOUT_COLUMN and all([rows < 0 for _, rows in columns]):
        # Every row takes 4 bytes here before it takes any in the buffer, and no column of the caller's bounds them.
        raise InvalidRecordError(
            f"row_count={count}: a block without a column that has rows of its own has at most "
            f"{MOST_ROWS_WITHOUT_COLUMN}"
        )
    if count > MOST_BLOCK_ROWS:
        raise InvalidRecordError(f"{owner} has {count} rows, a block at most {MOST_BLOCK_ROWS}")
    return count
