"""Cut CSV into rows by RFC 4180, looking only for separators, quotes and line ends. Pure; any thread; no GIL in the loops.

A row comes out as a view into the text; see `row_views`.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free
from libc.string cimport memchr, memset

from kafkaprod._core.text.row_views cimport MAX_TEXT_BYTES, VIEW_BYTES, ViewList, add_view, hold_text

# The status of a row in split_csv().
ROW_OPEN_QUOTE = 1
ROW_TEXT_AFTER_QUOTE = 2


cdef enum RowStatus:
    ROW_GOOD_C = 0
    ROW_OPEN_QUOTE_C = 1
    ROW_TEXT_AFTER_QUOTE_C = 2
    ROW_INCOMPLETE_C = 3
    NO_MEMORY_C = 4


cdef struct CsvText:
    const char *data
    Py_ssize_t size
    Py_ssize_t start            # of the next row
    Py_ssize_t line_feed        # the first one from some place before `start` on; `size` if there is none
    Py_ssize_t max_row_bytes
    char separator
    int quote                   # -1: none
    int escape                  # -1: none
    bint is_last


cdef Py_ssize_t end_of_line(CsvText *text, Py_ssize_t at) noexcept nogil:
    """Position of the first line feed or carriage return from `at` on; `size` if there is none."""
    cdef const char *found
    if text.line_feed < at:
        found = <const char *>memchr(text.data + at, c"\n", <size_t>(text.size - at))
        text.line_feed = text.size if found is NULL else found - text.data
    found = <const char *>memchr(text.data + at, c"\r", <size_t>(text.line_feed - at))
    return text.line_feed if found is NULL else found - text.data


cdef Py_ssize_t end_of_quoted(CsvText *text, Py_ssize_t at, RowStatus *status) noexcept nogil:
    """Position behind the closing quote of the field whose opening quote is before `at`."""
    cdef Py_ssize_t limit = text.start + text.max_row_bytes
    cdef const char *found
    cdef Py_ssize_t begin
    cdef Py_ssize_t escapes
    cdef bint may_go_on
    if limit > text.size:
        limit = text.size
    while at < limit:
        found = <const char *>memchr(text.data + at, text.quote, <size_t>(limit - at))
        if found is NULL:
            break
        begin = at
        at = found - text.data + 1
        if text.escape >= 0:
            escapes = at - 1
            while escapes > begin and text.data[escapes - 1] == <char>text.escape:
                escapes -= 1
            if (at - 1 - escapes) % 2 == 1:
                continue        # the quote is text
        if at == text.size and not text.is_last:
            status[0] = ROW_INCOMPLETE_C
            return at
        if at == text.size or text.data[at] != <char>text.quote:
            return at
        at += 1
    may_go_on = not text.is_last and text.size - text.start < text.max_row_bytes
    status[0] = ROW_INCOMPLETE_C if may_go_on else ROW_OPEN_QUOTE_C
    return limit


cdef Py_ssize_t end_of_row(CsvText *text, Py_ssize_t line_end, RowStatus *status) noexcept nogil:
    """Where the row at `start` ends, whose first line ends at `line_end`; quotes count where a field begins."""
    cdef Py_ssize_t at = text.start
    cdef const char *found
    while True:
        if at < text.size and text.data[at] == <char>text.quote:
            at = end_of_quoted(text, at + 1, status)
            if status[0] != ROW_GOOD_C:
                return line_end
            if at == text.size or text.data[at] == c"\n" or text.data[at] == c"\r":
                return at
            if text.data[at] != text.separator:
                status[0] = ROW_TEXT_AFTER_QUOTE_C
                return line_end
            at += 1
            continue
        if at > line_end:
            line_end = end_of_line(text, at)
        found = <const char *>memchr(text.data + at, text.separator, <size_t>(line_end - at))
        if found is NULL:
            return line_end
        at = found - text.data + 1


cdef RowStatus next_row(CsvText *text, ViewList *rows) noexcept nogil:
    """Cut the row at `start`; one that is malformed ends with its first line."""
    cdef RowStatus status = ROW_GOOD_C
    cdef Py_ssize_t first_end = end_of_line(text, text.start)
    cdef Py_ssize_t end = first_end
    cdef Py_ssize_t length = first_end - text.start
    if text.quote >= 0 and memchr(text.data + text.start, text.quote, <size_t>length) is not NULL:
        end = end_of_row(text, first_end, &status)
        if status == ROW_INCOMPLETE_C:
            return status
        if status != ROW_GOOD_C:
            end = first_end
            text.line_feed = -1     # the search went on behind this line
    if not text.is_last and (end == text.size or (end + 1 == text.size and text.data[end] == c"\r")):
        return ROW_INCOMPLETE_C     # the row, or its line end, may continue
    if not add_view(rows, text.data, text.start, end):
        return NO_MEMORY_C
    if end < text.size:
        end += 2 if text.data[end] == c"\r" and end + 1 < text.size and text.data[end + 1] == c"\n" else 1
    text.start = end
    return status


cdef RowStatus split_rows(CsvText *text, ViewList *rows, Py_ssize_t max_rows) noexcept nogil:
    """Cut rows until one is malformed, the text ends, or there are enough."""
    cdef RowStatus status = ROW_GOOD_C
    while status == ROW_GOOD_C and text.start < text.size and rows.count < max_rows:
        status = next_row(text, rows)
    return status


def split_csv(data not None, char separator, int quote, bint is_last, Py_ssize_t max_row_bytes,
              Py_ssize_t max_rows=MAX_TEXT_BYTES, int escape=-1):
    """Cut CSV into rows, which end with a line feed, a carriage return or both, outside of quoted fields.

    A field is quoted if its first byte is a quote; in it two quotes are one, and a single one ends it. A row is malformed
    where something else than a separator or a line end follows that, and where a quoted field does not end within
    max_row_bytes from the row's beginning or before the text ends. It then consists of its first line only, and the next
    line begins a row.
    Args:
        data: Buffer of less than 2 GiB. separator: the byte between fields. quote: -1 for none. is_last: no more text
        follows. max_row_bytes: see above. max_rows: to cut at most.
        escape: A quote behind an odd number of these bytes does not end a quoted field; -1 for none.
    Returns: (views of the rows, their number, bytes used, {place of a malformed row: ROW_OPEN_QUOTE or
        ROW_TEXT_AFTER_QUOTE}); the bytes left are the beginning of the next row.
    Sources: RFC 4180, section 2.
    """
    cdef Py_buffer buffer
    cdef ViewList rows
    cdef CsvText text
    cdef RowStatus status = ROW_GOOD_C
    cdef dict malformed = {}
    memset(&rows, 0, sizeof(rows))
    hold_text(data, &buffer)
    try:
        text.data = <const char *>buffer.buf
        text.size = buffer.len
        text.start = 0
        text.line_feed = -1
        text.max_row_bytes = min(max_row_bytes, <Py_ssize_t>MAX_TEXT_BYTES + 1)    # no text is as long
        text.separator = separator
        text.quote = quote
        text.escape = escape
        text.is_last = is_last
        while text.start < text.size and rows.count < max_rows and status != ROW_INCOMPLETE_C:
            with nogil:
                status = split_rows(&text, &rows, max_rows)
            if status == NO_MEMORY_C:
                raise MemoryError
            if status == ROW_OPEN_QUOTE_C or status == ROW_TEXT_AFTER_QUOTE_C:
                malformed[rows.count - 1] = <int>status
        return PyBytes_FromStringAndSize(rows.views, rows.count * VIEW_BYTES), rows.count, text.start, malformed
    finally:
        free(rows.views)
        PyBuffer_Release(&buffer)
