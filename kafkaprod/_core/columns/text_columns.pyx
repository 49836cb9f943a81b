"""Make columns of the texts of other columns: templates, numbers, times, several columns side by side.

Any thread; the loops hold no GIL. Columns are read with column_get(), so a row whose memory another thread changes comes
out as null, never as bytes outside of the column.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkaprod._core.columns.columns cimport PLACES, ByteColumn, Column, Place, column_get

from kafkaprod.errors import InvalidRecordError

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

# The status of a row in parse_integers() and parse_times().
TEXT_NUMBER = 0
TEXT_TIME = 1                   # ISO 8601, of parse_times() only
TEXT_NULL = 2
TEXT_OTHER = 3                  # unknown to these parsers: Python's may know it

cdef enum TextStatus:
    NUMBER_C = 0
    TIME_C = 1
    NULL_C = 2
    OTHER_C = 3

cdef enum:
    MOST_DIGITS = 18            # always fit an int64
    MOST_COLUMNS = 4096


cdef const ByteColumn **_byte_columns(tuple columns, Py_ssize_t row_count) except NULL:
    """Return pointers to the columns; the caller frees the array, and keeps the tuple as long.

    Raises: InvalidRecordError: one is too short. MemoryError: a place for each row of each column is too much.
    """
    cdef Py_ssize_t i
    cdef Column column
    cdef const ByteColumn **found
    if not 0 < len(columns) <= MOST_COLUMNS:
        raise InvalidRecordError(f"{len(columns)} columns: at least 1 and at most {MOST_COLUMNS} are possible")
    if row_count < 0:
        raise InvalidRecordError(f"row_count={row_count} is negative")
    if row_count > PY_SSIZE_T_MAX // <Py_ssize_t>(2 * sizeof(Place)) // len(columns):
        raise MemoryError
    for column in columns:
        if 0 <= column.row_count < row_count:
            raise InvalidRecordError(f"a column has {column.row_count} rows, {row_count} are needed")
    found = <const ByteColumn **>calloc(<size_t>len(columns), sizeof(void *))
    if found is NULL:
        raise MemoryError
    for i in range(len(columns)):
        column = columns[i]
        found[i] = &column.c
    return found


# -- templates ---------------------------------------------------------------------------------------------------------

cdef Py_ssize_t measure(const ByteColumn **columns, Py_ssize_t count, Py_ssize_t fixed, Py_ssize_t row_count,
                        int64_t *offsets, uint8_t *validity) noexcept nogil:
    """Write where each row's text begins, and which rows are not null; return the size of all."""
    cdef Py_ssize_t row
    cdef Py_ssize_t i
    cdef Py_ssize_t length = 0
    cdef Py_ssize_t size
    cdef Py_ssize_t total = 0
    cdef const char *data = NULL
    for row in range(row_count):
        offsets[row] = total
        size = fixed
        for i in range(count):
            column_get(columns[i], row, &data, &length)
            if length < 0:
                break
            size += length
        else:
            validity[row >> 3] |= <uint8_t>(1 << (row & 7))
            total += size
    offsets[row_count] = total
    return total


cdef bint fill_rows(const ByteColumn **columns, Py_ssize_t count, const char **texts, const Py_ssize_t *sizes,
                    Py_ssize_t row_count, const int64_t *offsets, const uint8_t *validity, char *out) noexcept nogil:
    """Write the texts; return whether each row had the size that was measured."""
    cdef Py_ssize_t row
    cdef Py_ssize_t i
    cdef Py_ssize_t length = 0
    cdef int64_t at
    cdef const char *data = NULL
    for row in range(row_count):
        if not (validity[row >> 3] >> (row & 7)) & 1:
            continue
        at = offsets[row]
        for i in range(count + 1):
            if at + sizes[i] > offsets[row + 1]:
                return False
            memcpy(out + at, texts[i], <size_t>sizes[i])
            at += sizes[i]
            if i == count:
                break
            column_get(columns[i], row, &data, &length)
            if length < 0 or at + length > offsets[row + 1]:
                return False
            memcpy(out + at, data, <size_t>length)
            at += length
        if at != offsets[row + 1]:
            return False
    return True


def fill_template(list texts not None, list columns not None, Py_ssize_t row_count):
    """Return texts and columns by turns as one column; a row is null if one of its columns is.

    Args: texts: bytes, one more than columns. columns: Column objects. row_count: rows to fill.
    Raises: InvalidRecordError: a column has fewer rows, or was changed meanwhile.
    """
    cdef tuple texts_held = tuple(texts)         # other threads may change the lists while the GIL is free
    cdef tuple columns_held = tuple(columns)
    cdef const ByteColumn **found = _byte_columns(columns_held, row_count)
    cdef Py_ssize_t count = len(columns_held)
    cdef const char **starts = NULL
    cdef Py_ssize_t *sizes = NULL
    cdef Py_ssize_t fixed = 0
    cdef Py_ssize_t total
    cdef Py_ssize_t i
    cdef bytearray offsets
    cdef bytearray validity
    cdef bytearray data
    cdef int64_t *offset_start
    cdef uint8_t *validity_start
    cdef char *data_start
    cdef bint is_same
    try:
        if len(texts_held) != count + 1:
            raise InvalidRecordError(f"{len(texts_held)} texts for {count} columns: one more is needed")
        starts = <const char **>calloc(<size_t>len(texts_held), sizeof(void *))
        sizes = <Py_ssize_t *>calloc(<size_t>len(texts_held), sizeof(Py_ssize_t))
        if starts is NULL or sizes is NULL:
            raise MemoryError
        for i in range(len(texts_held)):
            starts[i] = <bytes?>texts_held[i]
            sizes[i] = len(<bytes>texts_held[i])
            fixed += sizes[i]
        offsets = bytearray((row_count + 1) * sizeof(int64_t))
        validity = bytearray((row_count + 7) // 8)
        offset_start = <int64_t *>PyByteArray_AS_STRING(offsets)
        validity_start = <uint8_t *>PyByteArray_AS_STRING(validity)
        with nogil:
            total = measure(found, count, fixed, row_count, offset_start, validity_start)
        data = bytearray(total)
        data_start = PyByteArray_AS_STRING(data)
        with nogil:
            is_same = fill_rows(found, count, starts, sizes, row_count, offset_start, validity_start, data_start)
        if not is_same:
            raise InvalidRecordError("a column was changed while it was read")
        return Column.from_offsets(memoryview(offsets).cast("q"), data, validity, row_count=row_count)
    finally:
        free(starts)
        free(sizes)
        free(found)


# -- columns side by side ----------------------------------------------------------------------------------------------

def interleave(list columns not None, Py_ssize_t row_count):
    """Return row 0 of each column, then row 1 of each, and so on, as a column of places in these.

    Raises: InvalidRecordError: a column has fewer rows.
    """
    cdef tuple held = tuple(columns)             # other threads may change the list while the GIL is free
    cdef const ByteColumn **found = _byte_columns(held, row_count)
    cdef Py_ssize_t count = len(held)
    cdef Py_ssize_t row
    cdef Py_ssize_t i
    cdef Column column = Column.__new__(Column)
    cdef Place *places
    try:
        places = <Place *>column._allocate(row_count * count, sizeof(Place))
        with nogil:
            for row in range(row_count):
                for i in range(count):
                    places[row * count + i].data = NULL
                    column_get(found[i], row, &places[row * count + i].data, &places[row * count + i].length)
        column._kept = held
        column.row_count = row_count * count
        column.c.layout = PLACES
        column.c.places = places
        for i in range(count):
            column.c.longest = max(column.c.longest, found[i].longest, found[i].width)
        return column
    finally:
        free(found)


# -- numbers and times -------------------------------------------------------------------------------------------------

cdef inline bint is_digit(char c) noexcept nogil:
    return c >= 48 and c <= 57


cdef bint parse_integer(const char *data, Py_ssize_t length, int64_t *number) noexcept nogil:
    """Parse digits with or without a sign; False for anything else, and for more than MOST_DIGITS."""
    cdef Py_ssize_t at = 1 if length > 0 and (data[0] == c"-" or data[0] == c"+") else 0
    cdef int64_t value = 0
    if length - at < 1 or length - at > MOST_DIGITS:
        return False
    for i in range(at, length):
        if not is_digit(data[i]):
            return False
        value = value * 10 + (data[i] - 48)
    number[0] = -value if data[0] == c"-" else value
    return True


cdef bint two_digits(const char *data, int64_t least, int64_t most, int64_t *number) noexcept nogil:
    if not is_digit(data[0]) or not is_digit(data[1]):
        return False
    number[0] = (data[0] - 48) * 10 + (data[1] - 48)
    return least <= number[0] <= most


cdef int64_t days_from_civil(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Return days since 1970-01-01 in the Gregorian calendar, for years from 1 on. Source: Hinnant, chrono algorithms."""
    cdef int64_t era
    cdef int64_t year_of_era
    cdef int64_t day_of_year
    if month <= 2:
        year -= 1
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


cdef int64_t days_in_month(int64_t year, int64_t month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef bint parse_time(const char *data, Py_ssize_t length, int64_t *ms) noexcept nogil:
    """Parse YYYY-MM-DD, or that with hh:mm[:ss[.fraction]] and Z or +hh:mm; False for anything else."""
    cdef int64_t century = 0, year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, value = 0
    cdef int64_t offset = 0
    cdef int64_t unit = 100
    cdef Py_ssize_t at = 16
    if length < 10 or data[4] != c"-" or data[7] != c"-":
        return False
    if not (two_digits(data, 0, 99, &century) and two_digits(data + 2, 0, 99, &year)
            and two_digits(data + 5, 1, 12, &month) and two_digits(data + 8, 1, 31, &day)):
        return False
    year += century * 100
    if year < 1 or day > days_in_month(year, month):
        return False
    if length > 10:
        if length < 16 or (data[10] != c"T" and data[10] != c" ") or data[13] != c":":
            return False
        if not (two_digits(data + 11, 0, 23, &hour) and two_digits(data + 14, 0, 59, &minute)):
            return False
        if at < length and data[at] == c":":
            if at + 3 > length or not two_digits(data + at + 1, 0, 59, &second):
                return False
            at += 3
            if at < length and data[at] == c".":
                at += 1
                if at >= length or not is_digit(data[at]):
                    return False
                while at < length and is_digit(data[at]):
                    value += (data[at] - 48) * unit     # digits behind the third count nothing
                    unit //= 10
                    at += 1
        if at + 1 == length and data[at] == c"Z":
            at += 1
        elif at + 6 == length and (data[at] == c"+" or data[at] == c"-") and data[at + 3] == c":":
            if not (two_digits(data + at + 1, 0, 23, &century) and two_digits(data + at + 4, 0, 59, &offset)):
                return False
            offset += century * 60
            offset = -offset if data[at] == c"-" else offset
            at += 6
        if at != length:
            return False
    ms[0] = (((days_from_civil(year, month, day) * 24 + hour) * 60 + minute - offset) * 60 + second) * 1000 + value
    return True


cdef void parse_rows(const ByteColumn *column, Py_ssize_t count, bint has_times, int64_t *out, uint8_t *statuses) noexcept nogil:
    cdef Py_ssize_t i
    cdef Py_ssize_t length = 0
    cdef const char *data = NULL
    for i in range(count):
        column_get(column, i, &data, &length)
        out[i] = 0
        if length < 0:
            statuses[i] = NULL_C
        elif parse_integer(data, length, &out[i]):
            statuses[i] = NUMBER_C
        elif has_times and parse_time(data, length, &out[i]):
            statuses[i] = TIME_C
        else:
            statuses[i] = OTHER_C


def parse_numbers(Column column not None, int64_t[::1] out not None, uint8_t[::1] statuses not None, bint has_times=False):
    """Write the number of each row to `out` and TEXT_... to `statuses`.

    Args: has_times: also parse ISO 8601 texts, as ms since the epoch (UTC without an offset).
    Raises: InvalidRecordError: the column has fewer rows than `out`, or the arrays are of unequal length.
    """
    cdef Py_ssize_t count = out.shape[0]
    cdef int64_t *numbers
    cdef uint8_t *found
    if statuses.shape[0] != count or 0 <= column.row_count < count:
        raise InvalidRecordError(f"{column.row_count} rows and {statuses.shape[0]} statuses for {count} numbers")
    if count > 0:
        numbers = &out[0]
        found = &statuses[0]
        with nogil:
            parse_rows(&column.c, count, has_times, numbers, found)
