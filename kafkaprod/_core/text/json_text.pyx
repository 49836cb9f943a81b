"""Strings with JSON's escapes, base64, dates and times, as Spark's to_json writes them, without the GIL.

Strings: as Jackson writes them: \\" \\\\ \\b \\f \\n \\r \\t, \\u00XX in capitals for other controls, all else as UTF-8. What is
not UTF-8 becomes U+FFFD, one for each maximal subpart (Unicode 15, section 3.9), as Java and Python decode it.
Dates and times: proleptic Gregorian calendar; years beyond 9999 carry a plus sign.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkaprod._core.text.number_text cimport write_padded, write_unsigned
from kafkaprod._core.text.text_output cimport reserve

cdef enum:
    LONGEST_ESCAPE = 6

cdef const char *HEX = "0123456789ABCDEF"
cdef const char *BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef uint8_t[256] IS_SPECIAL        # must not be copied as it is: controls, quote, backslash, bytes of UTF-8 sequences
cdef uint64_t ONES = 0x0101010101010101
cdef uint64_t HIGHS = 0x8080808080808080


def _fill_table():
    for i in range(256):
        IS_SPECIAL[i] = i < 0x20 or i in (0x22, 0x5C) or i >= 0x80


_fill_table()
del _fill_table


cdef inline bint has_special(uint64_t word) noexcept nogil:
    """Whether one of eight bytes is special; may say so of none (never misses one)."""
    cdef uint64_t quotes = word ^ (ONES * 0x22)
    cdef uint64_t slashes = word ^ (ONES * 0x5C)
    return ((word | (word - ONES * 0x20) | (quotes - ONES) | (slashes - ONES)) & HIGHS) != 0


cdef int append_string(Output *out, const char *text, Py_ssize_t size) noexcept nogil:
    """The text in quotes; -1 without memory."""
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t taken
    cdef uint64_t word
    cdef uint8_t byte
    # Always kept: room for what is left of the text, one escape, and the quote.
    cdef char *p = reserve(out, size + LONGEST_ESCAPE + 10)
    if p is NULL:
        return -1
    p[0] = c'"'
    p += 1
    while i < size:
        if size - i >= 8:
            memcpy(&word, text + i, 8)
            if not has_special(word):
                memcpy(p, &word, 8)
                p += 8
                i += 8
                continue
        byte = <uint8_t>text[i]
        if not IS_SPECIAL[byte]:
            p[0] = text[i]
            p += 1
            i += 1
            continue
        if byte >= 0x80:
            taken = sequence_length(<const uint8_t *>text + i, size - i)
            if taken > 0:
                memcpy(p, text + i, <size_t>taken)
                p += taken
                i += taken
                continue
            memcpy(p, "\xef\xbf\xbd", 3)
            p += 3
            i -= taken
        else:
            p = write_escape(p, byte)
            i += 1
        out.size = p - out.data
        p = reserve(out, size - i + LONGEST_ESCAPE + 10)
        if p is NULL:
            return -1
    p[0] = c'"'
    out.size = p + 1 - out.data
    return 0


cdef inline char *write_escape(char *p, uint8_t byte) noexcept nogil:
    p[0] = c"\\"
    if byte == c'"' or byte == c"\\":
        p[1] = <char>byte
    elif byte == 8:
        p[1] = c"b"
    elif byte == 9:
        p[1] = c"t"
    elif byte == 10:
        p[1] = c"n"
    elif byte == 12:
        p[1] = c"f"
    elif byte == 13:
        p[1] = c"r"
    else:
        memcpy(p + 1, "u00", 3)
        p[4] = HEX[byte >> 4]
        p[5] = HEX[byte & 15]
        return p + 6
    return p + 2


cdef Py_ssize_t sequence_length(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Bytes of the UTF-8 sequence that begins here, or minus the bytes that one U+FFFD stands for.

    Source: Unicode 15, table 3-7 (well-formed byte sequences).
    """
    cdef uint8_t lead = text[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef Py_ssize_t length
    cdef Py_ssize_t i
    if lead < 0xC2 or lead > 0xF4:
        return -1
    if lead < 0xE0:
        length = 2
    elif lead < 0xF0:
        length = 3
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:
            high = 0x9F
    else:
        length = 4
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F
    for i in range(1, length):
        if i >= size or text[i] < low or text[i] > high:
            return -i
        low = 0x80
        high = 0xBF
    return length


cdef int append_base64(Output *out, const char *data, Py_ssize_t size) noexcept nogil:
    """The bytes in base64 (RFC 4648, with padding) in quotes; -1 without memory."""
    cdef char *p = reserve(out, (size + 2) // 3 * 4 + 2)
    cdef const uint8_t *b = <const uint8_t *>data
    cdef uint32_t word
    if p is NULL:
        return -1
    p[0] = c'"'
    p += 1
    while size >= 3:
        word = (<uint32_t>b[0] << 16) | (<uint32_t>b[1] << 8) | b[2]
        p[0] = BASE64[word >> 18]
        p[1] = BASE64[(word >> 12) & 63]
        p[2] = BASE64[(word >> 6) & 63]
        p[3] = BASE64[word & 63]
        p += 4
        b += 3
        size -= 3
    if size:
        word = <uint32_t>b[0] << 16
        if size == 2:
            word |= <uint32_t>b[1] << 8
        p[0] = BASE64[word >> 18]
        p[1] = BASE64[(word >> 12) & 63]
        p[2] = BASE64[(word >> 6) & 63] if size == 2 else c"="
        p[3] = c"="
        p += 4
    p[0] = c'"'
    out.size = p + 1 - out.data
    return 0


cdef inline int64_t floor_divide(int64_t number, int64_t divisor) noexcept nogil:
    cdef int64_t quotient = number // divisor
    return quotient - 1 if number % divisor < 0 else quotient


cdef char *write_date(char *p, int64_t days) noexcept nogil:
    """yyyy-MM-dd of a count of days since 1970-01-01; at most 32 bytes.

    The year is counted from March, so that the leap day is its last: eras of 400 years have 146,097 days.
    """
    cdef int64_t day = days + 719468             # since 0000-03-01
    cdef int64_t era = floor_divide(day, 146097)
    cdef int64_t of_era = day - era * 146097
    cdef int64_t year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef int64_t of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef int64_t march_month = (5 * of_year + 2) // 153
    cdef int64_t month = march_month + 3 if march_month < 10 else march_month - 9
    cdef int64_t year = year_of_era + era * 400 + (month <= 2)
    if year < 0:
        p[0] = c"-"
        p += 1
        year = -year
    elif year > 9999:
        p[0] = c"+"
        p += 1
    p = write_padded(p, <uint64_t>year, 4) if year <= 9999 else write_unsigned(p, <uint64_t>year)
    p[0] = c"-"
    p = write_padded(p + 1, <uint64_t>month, 2)
    p[0] = c"-"
    return write_padded(p + 1, <uint64_t>(of_year - (153 * march_month + 2) // 5 + 1), 2)


cdef char *write_timestamp(char *p, int64_t time, int64_t units_per_second, bint has_zone, int64_t offset_s) noexcept nogil:
    """yyyy-MM-dd'T'HH:mm:ss.SSS, then the zone as Z or +HH:MM if there is one; at most MOST_TIME_TEXT bytes.

    Digits beyond the millisecond are cut off, towards the past.
    """
    cdef int64_t seconds = floor_divide(time, units_per_second)
    cdef int64_t fraction = time - seconds * units_per_second
    cdef int64_t days
    seconds += offset_s
    days = floor_divide(seconds, 86400)
    seconds -= days * 86400
    p = write_date(p, days)
    p[0] = c"T"
    p = write_clock(p + 1, seconds)
    p[0] = c"."
    if units_per_second >= 1000:
        fraction //= units_per_second // 1000
    else:
        fraction *= 1000 // units_per_second
    p = write_padded(p + 1, <uint64_t>fraction, 3)
    if not has_zone:
        return p
    if offset_s == 0:
        p[0] = c"Z"
        return p + 1
    p[0] = c"-" if offset_s < 0 else c"+"
    offset_s = -offset_s if offset_s < 0 else offset_s
    p = write_padded(p + 1, <uint64_t>(offset_s // 3600), 2)
    p[0] = c":"
    return write_padded(p + 1, <uint64_t>(offset_s // 60 % 60), 2)


cdef inline char *write_clock(char *p, int64_t seconds) noexcept nogil:
    p = write_padded(p, <uint64_t>(seconds // 3600), 2)
    p[0] = c":"
    p = write_padded(p + 1, <uint64_t>(seconds // 60 % 60), 2)
    p[0] = c":"
    return write_padded(p + 1, <uint64_t>(seconds % 60), 2)


cdef char *write_time_of_day(char *p, int64_t time, int64_t units_per_second) noexcept nogil:
    """HH:mm:ss, then as many decimals as it has, without zeros at the end; at most MOST_TIME_TEXT bytes."""
    cdef int64_t seconds = floor_divide(time, units_per_second)
    cdef int64_t fraction = time - seconds * units_per_second
    cdef int32_t places = 0
    p = write_clock(p, seconds)
    if fraction == 0:
        return p
    while units_per_second > 1:
        units_per_second //= 10
        places += 1
    while fraction % 10 == 0:
        fraction //= 10
        places -= 1
    p[0] = c"."
    return write_padded(p + 1, <uint64_t>fraction, places)
