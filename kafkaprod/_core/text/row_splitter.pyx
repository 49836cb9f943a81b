"""Cut text into rows, looking only for where rows end. Pure; any thread; the loops hold no GIL.

A row comes out as a view of Arrow's binary_view layout into the text given, so that nothing is copied and no object is
made per row: `Column.from_views(views, [data])`. Sources: Arrow columnar format 1.4; RFC 4180; RFC 8259.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from kafkaprod._core.text.row_views cimport INLINE_BYTES, VIEW_BYTES, ViewList, add_view, hold_text, put_view

from kafkaprod.errors import InvalidRecordError

# The status of a row in find_fields().
FIELD_FOUND = 0
FIELD_MISSING = 1               # or null
FIELD_ESCAPED = 2               # a string with escapes: the view is what stands between its quotes
FIELD_BROKEN = 3                # the row is not a JSON object, as far as it was read


cdef Py_ssize_t split_all(ViewList *rows, const char *data, Py_ssize_t size, char delimiter, bint strip_cr,
                          bint is_last) noexcept nogil:
    """Cut every line; return how many bytes were used, or -1 without memory."""
    cdef const char *found
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end
    cdef Py_ssize_t next_start
    while start < size:
        found = <const char *>memchr(data + start, delimiter, <size_t>(size - start))
        if found is NULL:
            if not is_last:
                break
            end = next_start = size
        else:
            end = found - data
            next_start = end + 1
        if strip_cr and end > start and data[end - 1] == b"\r":
            end -= 1
        if not add_view(rows, data, start, end):
            return -1
        start = next_start
    return start


def split_lines(data not None, char delimiter=10, bint strip_cr=True, bint is_last=False):
    """Cut text at a delimiter.

    Args:
        data: Buffer of less than 2 GiB. delimiter: the byte that ends a line. strip_cr: a carriage return before the
        delimiter is not part of the line. is_last: no more text follows, so that the rest without a delimiter is a line.
    Returns: (views of the lines, their number, bytes used); the bytes left are the beginning of the next line.
    """
    cdef Py_buffer buffer
    cdef ViewList rows
    cdef Py_ssize_t used
    memset(&rows, 0, sizeof(rows))
    hold_text(data, &buffer)
    try:
        with nogil:
            used = split_all(&rows, <const char *>buffer.buf, buffer.len, delimiter, strip_cr, is_last)
        if used < 0:
            raise MemoryError
        return PyBytes_FromStringAndSize(rows.views, rows.count * VIEW_BYTES), rows.count, used
    finally:
        free(rows.views)
        PyBuffer_Release(&buffer)


# -- JSON --------------------------------------------------------------------------------------------------------------

cdef inline bint is_blank(char c) noexcept nogil:
    return c == 32 or c == 10 or c == 13 or c == 9


cdef inline Py_ssize_t skip_blanks(const char *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    while at < size and is_blank(data[at]):
        at += 1
    return at


cdef Py_ssize_t string_end(const char *data, Py_ssize_t at, Py_ssize_t size, bint *has_escape) noexcept nogil:
    """Position of the quote that ends the string whose first character is at `at`; `size` if there is none."""
    cdef const char *found
    cdef Py_ssize_t position = at
    cdef Py_ssize_t escapes
    while True:
        found = <const char *>memchr(data + position, c'"', <size_t>(size - position))
        if found is NULL:
            return size
        position = found - data
        escapes = position
        while escapes > at and data[escapes - 1] == c"\\":
            escapes -= 1
        if (position - escapes) % 2 == 0:
            if not has_escape[0]:
                has_escape[0] = memchr(data + at, c"\\", <size_t>(position - at)) is not NULL
            return position
        has_escape[0] = True
        position += 1


cdef Py_ssize_t value_end(const char *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Position of the comma or bracket behind the JSON value at `at`; `size` if it does not end. Brackets are counted only."""
    cdef Py_ssize_t depth = 0
    cdef bint has_escape = False
    while at < size:
        if data[at] == c'"':
            at = string_end(data, at + 1, size, &has_escape)
        elif data[at] == c"{" or data[at] == c"[":
            depth += 1
        elif data[at] == c"}" or data[at] == c"]":
            if depth == 0:
                return at
            depth -= 1
        elif data[at] == c"," and depth == 0:
            return at
        at += 1
    return size


# -- JSON that is cut into rows: all of it is looked at, because what is no JSON has no rows ---------------------------

cdef const char *ESCAPES = b'"\\/bfnrt'

cdef enum:
    NOT_WHOLE = -1              # the text ends in the value
    NOT_JSON = -2
    NO_MEMORY = -3

cdef enum Expected:             # what may come next
    A_VALUE = 0
    A_VALUE_OR_END = 1          # behind the bracket of an array
    A_KEY = 2
    A_KEY_OR_END = 3            # behind the bracket of an object
    A_COMMA_OR_END = 4


cdef struct Nesting:            # of the value that is read
    uint8_t *is_object          # for each open bracket
    Py_ssize_t depth
    Py_ssize_t room
    Py_ssize_t wrong            # where it is NOT_JSON


cdef bint push(Nesting *nesting, bint is_object) noexcept nogil:
    """Open a bracket; return False without memory."""
    cdef void *grown
    if nesting.depth == nesting.room:
        grown = realloc(nesting.is_object, <size_t>(2 * nesting.room + 64))
        if grown is NULL:
            return False
        nesting.is_object = <uint8_t *>grown
        nesting.room = 2 * nesting.room + 64
    nesting.is_object[nesting.depth] = is_object
    nesting.depth += 1
    return True


cdef inline Py_ssize_t wrong_at(Nesting *nesting, Py_ssize_t at) noexcept nogil:
    nesting.wrong = at
    return NOT_JSON


cdef inline bint is_digit(char c) noexcept nogil:
    return c"0" <= c <= c"9"


cdef inline bint is_hex(char c) noexcept nogil:
    return is_digit(c) or c"a" <= (c | 0x20) <= c"f"


cdef Py_ssize_t behind_string(const char *data, Py_ssize_t at, Py_ssize_t size, Nesting *nesting) noexcept nogil:
    """Position behind the string whose first character is at `at`; NOT_WHOLE or NOT_JSON."""
    cdef char c
    cdef Py_ssize_t i
    while at < size:
        c = data[at]
        if c == c'"':
            return at + 1
        if <uint8_t>c < 0x20:
            return wrong_at(nesting, at)
        if c != c"\\":
            at += 1
            continue
        if at + 1 >= size:
            return NOT_WHOLE
        c = data[at + 1]
        at += 2
        if c == c"u":
            for i in range(at, min(at + 4, size)):
                if not is_hex(data[i]):
                    return wrong_at(nesting, i)
            at += 4
        elif memchr(ESCAPES, c, 8) is NULL:
            return wrong_at(nesting, at - 1)
    return NOT_WHOLE


cdef Py_ssize_t behind_digits(const char *data, Py_ssize_t at, Py_ssize_t size, Nesting *nesting) noexcept nogil:
    """Position behind one digit or more; NOT_WHOLE or NOT_JSON."""
    if at >= size:
        return NOT_WHOLE
    if not is_digit(data[at]):
        return wrong_at(nesting, at)
    while at < size and is_digit(data[at]):
        at += 1
    return at


cdef Py_ssize_t behind_number(const char *data, Py_ssize_t at, Py_ssize_t size, Nesting *nesting) noexcept nogil:
    """Position behind the number at `at`; NOT_WHOLE, also if the text ends with it, or NOT_JSON."""
    if data[at] == c"-":
        at += 1
    if at < size and data[at] == c"0":
        at += 1
    else:
        at = behind_digits(data, at, size, nesting)
    if 0 <= at < size and data[at] == c".":
        at = behind_digits(data, at + 1, size, nesting)
    if 0 <= at < size and (data[at] == c"e" or data[at] == c"E"):
        at += 1
        if at < size and (data[at] == c"+" or data[at] == c"-"):
            at += 1
        at = behind_digits(data, at, size, nesting)
    return NOT_WHOLE if at >= size else at


cdef Py_ssize_t behind_word(const char *data, Py_ssize_t at, Py_ssize_t size, Nesting *nesting) noexcept nogil:
    """Position behind `true`, `false` or `null`; NOT_WHOLE or NOT_JSON."""
    cdef const char *word = b"true" if data[at] == c"t" else b"false" if data[at] == c"f" else b"null"
    cdef Py_ssize_t i = 0
    while word[i] != 0:
        if at + i >= size:
            return NOT_WHOLE
        if data[at + i] != word[i]:
            return wrong_at(nesting, at + i)
        i += 1
    return at + i


cdef Py_ssize_t behind_value(const char *data, Py_ssize_t at, Py_ssize_t size, Nesting *nesting) noexcept nogil:
    """Position behind the JSON value at `at`, every byte of which is looked at; NOT_WHOLE, NOT_JSON or NO_MEMORY.

    Strings may have any bytes but control characters: whether they are UTF-8 is not looked at. Source: RFC 8259.
    """
    cdef Expected expected = A_VALUE
    cdef char c
    nesting.depth = 0
    while True:
        at = skip_blanks(data, at, size)
        if at >= size:
            return NOT_WHOLE
        c = data[at]
        if expected == A_COMMA_OR_END and c == c",":
            expected = A_KEY if nesting.is_object[nesting.depth - 1] else A_VALUE
            at += 1
            continue
        if c == c"}" or c == c"]":
            if expected != A_COMMA_OR_END and expected != (A_KEY_OR_END if c == c"}" else A_VALUE_OR_END):
                return wrong_at(nesting, at)
            if nesting.is_object[nesting.depth - 1] != (c == c"}"):
                return wrong_at(nesting, at)
            nesting.depth -= 1
            at += 1
        elif expected == A_KEY or expected == A_KEY_OR_END:
            if c != c'"':
                return wrong_at(nesting, at)
            at = behind_string(data, at + 1, size, nesting)
            if at < 0:
                return at
            at = skip_blanks(data, at, size)
            if at >= size:
                return NOT_WHOLE
            if data[at] != c":":
                return wrong_at(nesting, at)
            at += 1
            expected = A_VALUE
            continue
        elif expected == A_COMMA_OR_END:
            return wrong_at(nesting, at)
        elif c == c"{" or c == c"[":
            if not push(nesting, c == c"{"):
                return NO_MEMORY
            expected = A_KEY_OR_END if c == c"{" else A_VALUE_OR_END
            at += 1
            continue
        elif c == c'"':
            at = behind_string(data, at + 1, size, nesting)
        elif c == c"-" or is_digit(c):
            at = behind_number(data, at, size, nesting)
        elif c == c"t" or c == c"f" or c == c"n":
            at = behind_word(data, at, size, nesting)
        else:
            return wrong_at(nesting, at)
        if at < 0 or nesting.depth == 0:
            return at
        expected = A_COMMA_OR_END


cdef Py_ssize_t split_array(ViewList *rows, const char *data, Py_ssize_t size, bint may_end, bint *is_end,
                            Nesting *nesting) noexcept nogil:
    """Cut every element; return how many bytes were used, or NO_MEMORY."""
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef Py_ssize_t at
    while True:
        start = skip_blanks(data, used, size)
        if may_end and start < size and data[start] == c"]":
            is_end[0] = True
            return start + 1
        end = behind_value(data, start, size, nesting)
        if end < 0:
            return NO_MEMORY if end == NO_MEMORY else used
        at = skip_blanks(data, end, size)
        if at >= size:
            return used
        if data[at] != c"," and data[at] != c"]":
            nesting.wrong = at
            return used
        if not add_view(rows, data, start, end):
            return NO_MEMORY
        may_end = False
        used = at + 1
        if data[at] == c"]":
            is_end[0] = True
            return used


cdef Py_ssize_t split_all_documents(ViewList *rows, const char *data, Py_ssize_t size, Nesting *nesting) noexcept nogil:
    """Cut every document; return how many bytes were used, or NO_MEMORY."""
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    while True:
        start = skip_blanks(data, used, size)
        if start >= size:
            return start
        if data[start] != c"{" and data[start] != c"[":
            nesting.wrong = start
            return used
        end = behind_value(data, start, size, nesting)
        if end < 0:
            return NO_MEMORY if end == NO_MEMORY else used
        if not add_view(rows, data, start, end):
            return NO_MEMORY
        used = end


def split_elements(data not None, bint may_end=True):
    """Cut the inside of a JSON array into its elements. Between two elements is exactly one comma.

    Args: data: text from behind the array's opening bracket or a comma on. may_end: the array may end before the first
    element, which it may not behind a comma.
    Returns: (views of the whole elements, their number, bytes used, whether the array ended, where the text is no JSON,
    -1 if all that was looked at is).
    """
    cdef Py_buffer buffer
    cdef ViewList rows
    cdef Nesting nesting
    cdef Py_ssize_t used
    cdef bint is_end = False
    memset(&rows, 0, sizeof(rows))
    memset(&nesting, 0, sizeof(nesting))
    nesting.wrong = -1
    hold_text(data, &buffer)
    try:
        with nogil:
            used = split_array(&rows, <const char *>buffer.buf, buffer.len, may_end, &is_end, &nesting)
        if used < 0:
            raise MemoryError
        views = PyBytes_FromStringAndSize(rows.views, rows.count * VIEW_BYTES)
        return views, rows.count, used, is_end, nesting.wrong
    finally:
        free(nesting.is_object)
        free(rows.views)
        PyBuffer_Release(&buffer)


def split_documents(data not None):
    """Cut JSON objects and arrays that stand one after another, with nothing but blanks between them.

    Args: data: text from the beginning of a document on.
    Returns: (views of the whole documents, their number, bytes used, where the text is no JSON or another value, -1 if
    all that was looked at is right). All bytes are used if no document is begun behind the last whole one.
    """
    cdef Py_buffer buffer
    cdef ViewList rows
    cdef Nesting nesting
    cdef Py_ssize_t used
    memset(&rows, 0, sizeof(rows))
    memset(&nesting, 0, sizeof(nesting))
    nesting.wrong = -1
    hold_text(data, &buffer)
    try:
        with nogil:
            used = split_all_documents(&rows, <const char *>buffer.buf, buffer.len, &nesting)
        if used < 0:
            raise MemoryError
        return PyBytes_FromStringAndSize(rows.views, rows.count * VIEW_BYTES), rows.count, used, nesting.wrong
    finally:
        free(nesting.is_object)
        free(rows.views)
        PyBuffer_Release(&buffer)


cdef int find_field(const char *data, Py_ssize_t size, const char *name, Py_ssize_t name_size, Py_ssize_t *start,
                    Py_ssize_t *end) noexcept nogil:
    """Find a field of the JSON object data[0 .. size]; see find_fields()."""
    cdef Py_ssize_t at = skip_blanks(data, 0, size)
    cdef Py_ssize_t key
    cdef Py_ssize_t key_end
    cdef bint has_escape
    if at >= size or data[at] != c"{":
        return FIELD_BROKEN_C
    at += 1
    while True:
        at = skip_blanks(data, at, size)
        if at < size and data[at] == c"}":
            return FIELD_MISSING_C
        if at >= size or data[at] != c'"':
            return FIELD_BROKEN_C
        key = at + 1
        has_escape = False
        key_end = string_end(data, key, size, &has_escape)
        at = skip_blanks(data, key_end + 1, size)
        if at >= size or data[at] != c":":
            return FIELD_BROKEN_C
        at = skip_blanks(data, at + 1, size)
        if key_end - key == name_size and memcmp(data + key, name, <size_t>name_size) == 0:
            return take_value(data, at, size, start, end)
        at = value_end(data, at, size)
        if at >= size or data[at] == c"]":
            return FIELD_BROKEN_C
        if data[at] == c"}":
            return FIELD_MISSING_C
        at += 1


cdef enum FieldStatus:
    FIELD_FOUND_C = 0
    FIELD_MISSING_C = 1
    FIELD_ESCAPED_C = 2
    FIELD_BROKEN_C = 3


cdef int take_value(const char *data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t *start, Py_ssize_t *end) noexcept nogil:
    cdef bint has_escape = False
    if at < size and data[at] == c'"':
        start[0] = at + 1
        end[0] = string_end(data, at + 1, size, &has_escape)
        if end[0] >= size:
            return FIELD_BROKEN_C
        return FIELD_ESCAPED_C if has_escape else FIELD_FOUND_C
    start[0] = at
    end[0] = value_end(data, at, size)
    if end[0] >= size:
        return FIELD_BROKEN_C
    while end[0] > at and is_blank(data[end[0] - 1]):
        end[0] -= 1
    if end[0] == at:
        return FIELD_BROKEN_C
    if end[0] - at == 4 and memcmp(data + at, b"null", 4) == 0:
        return FIELD_MISSING_C
    return FIELD_FOUND_C


cdef Py_ssize_t first_bad_view(const char *views, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    """Return the first view that reaches outside of `size` bytes of text, -1 if there is none."""
    cdef Py_ssize_t i
    cdef int32_t length
    cdef int32_t offset
    for i in range(count):
        memcpy(&length, views + i * VIEW_BYTES, 4)
        memcpy(&offset, views + i * VIEW_BYTES + 12, 4)
        if length < 0 or (length > INLINE_BYTES and (offset < 0 or offset + <int64_t>length > size)):
            return i
    return -1


cdef bytes checked_views(const unsigned char[::1] views, Py_ssize_t size):
    """Return a copy of the views, which other threads may change, after a check of each against the size of the text."""
    cdef Py_ssize_t count = views.shape[0] // VIEW_BYTES
    cdef bytes copy = b"" if count == 0 else (<const char *>&views[0])[:count * VIEW_BYTES]
    cdef Py_ssize_t bad = first_bad_view(copy, count, size)
    if bad >= 0:
        raise InvalidRecordError(f"view {bad} reaches outside of the {size} bytes of text")
    return copy


cdef void find_all(const char *data, const char *views, Py_ssize_t count, const char *name, Py_ssize_t name_size,
                   char *found, uint8_t *statuses) noexcept nogil:
    cdef Py_ssize_t i
    cdef const char *view
    cdef const char *row
    cdef int32_t length
    cdef int32_t offset
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t end = 0
    for i in range(count):
        view = views + i * VIEW_BYTES
        memcpy(&length, view, 4)
        memcpy(&offset, view + 12, 4)
        row = view + 4 if length <= INLINE_BYTES else data + offset
        statuses[i] = <uint8_t>find_field(row, length, name, name_size, &start, &end)
        if statuses[i] == FIELD_FOUND_C or statuses[i] == FIELD_ESCAPED_C:
            # A short row is inside its view, and so is any part of it.
            put_view(found + i * VIEW_BYTES, row if length <= INLINE_BYTES else data,
                     start if length <= INLINE_BYTES else offset + start, end - start)
        else:
            memset(found + i * VIEW_BYTES, 0, VIEW_BYTES)


def find_fields(data not None, const unsigned char[::1] views not None, bytes name not None):
    """Find the value of a field on the first level of each row, a JSON object; nothing behind it is read.

    Args: data, views: as split_lines() gave them. name: the field's, as it is written in the text.
    Returns: (views of the values, a status per row): a string without its quotes, anything else as it is written.
    """
    cdef Py_buffer buffer
    cdef Py_ssize_t count = views.shape[0] // VIEW_BYTES
    cdef bytearray found = bytearray(count * VIEW_BYTES)
    cdef bytearray statuses = bytearray(count)
    cdef char *found_start = found
    cdef char *statuses_start = statuses
    cdef const char *name_start = name
    cdef const char *views_start
    cdef bytes checked
    cdef Py_ssize_t name_size = len(name)
    if count == 0:
        return found, statuses
    hold_text(data, &buffer)
    try:
        checked = checked_views(views, buffer.len)
        views_start = checked
        with nogil:
            find_all(<const char *>buffer.buf, views_start, count, name_start, name_size, found_start,
                     <uint8_t *>statuses_start)
    finally:
        PyBuffer_Release(&buffer)
    return found, statuses


cdef Py_ssize_t find_separator(const char *row, Py_ssize_t size, const char *separator, Py_ssize_t width) noexcept nogil:
    """Where the separator stands first in the row; -1 if it does not."""
    cdef const char *at = row
    cdef const char *end = row + size - width + 1
    while at < end:
        at = <const char *>memchr(at, separator[0], <size_t>(end - at))
        if at is NULL:
            return -1
        if memcmp(at, separator, <size_t>width) == 0:
            return at - row
        at += 1
    return -1


cdef void split_pairs(const char *data, const char *views, Py_ssize_t count, const char *separator, Py_ssize_t width,
                      char *keys, char *values, uint8_t *has_key) noexcept nogil:
    cdef Py_ssize_t i
    cdef Py_ssize_t place
    cdef const char *base
    cdef Py_ssize_t start
    cdef int32_t length
    cdef int32_t offset
    for i in range(count):
        memcpy(&length, views + i * VIEW_BYTES, 4)
        memcpy(&offset, views + i * VIEW_BYTES + 12, 4)
        base = views + i * VIEW_BYTES + 4 if length <= INLINE_BYTES else data
        start = 0 if length <= INLINE_BYTES else offset
        place = find_separator(base + start, length, separator, width)
        has_key[i] = place >= 0
        if place < 0:
            memcpy(values + i * VIEW_BYTES, views + i * VIEW_BYTES, VIEW_BYTES)
            continue
        put_view(keys + i * VIEW_BYTES, base, start, place)
        put_view(values + i * VIEW_BYTES, base, start + place + width, length - place - width)


def split_keys(data not None, const unsigned char[::1] views not None, bytes separator not None):
    """Part each row at the first separator into key and value; a row without one is a value without a key.

    Args: data, views: as split_lines() gave them. separator: one byte at least.
    Returns: (views of the keys, views of the values, 1 per row with a key).
    """
    cdef Py_buffer buffer
    cdef Py_ssize_t count = views.shape[0] // VIEW_BYTES
    cdef bytearray keys = bytearray(count * VIEW_BYTES)
    cdef bytearray values = bytearray(count * VIEW_BYTES)
    cdef bytearray has_key = bytearray(count)
    cdef char *keys_start = keys
    cdef char *values_start = values
    cdef char *has_key_start = has_key
    cdef const char *separator_start = separator
    cdef const char *views_start
    cdef bytes checked
    cdef Py_ssize_t width = len(separator)
    if width < 1:
        raise InvalidRecordError("a separator has one byte at least")
    if count == 0:
        return keys, values, has_key
    hold_text(data, &buffer)
    try:
        checked = checked_views(views, buffer.len)
        views_start = checked
        with nogil:
            split_pairs(<const char *>buffer.buf, views_start, count, separator_start, width, keys_start,
                        values_start, <uint8_t *>has_key_start)
    finally:
        PyBuffer_Release(&buffer)
    return keys, values, has_key
