"""Integers, floats and decimals as text, byte for byte as Java writes them, without the GIL.

A float gets the shortest digits that read back as the same float, the closest of these where there are several, in Java's
layout: 1.0, 0.001, 1234567.0, 1.0E7, 1.0E-4. JDK 19 and later print exactly this (JDK-4511638); older ones sometimes
one digit more. Source of the method: R. Giulietti, "The Schubfach way to render doubles", 2021. Source of the decimal
layout: java.math.BigDecimal.toString().
"""

from libc.math cimport isnan
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    uint64_t multiply "kp_multiply"(uint64_t a, uint64_t b, uint64_t *high)

cdef enum:
    LEAST_POWER = -292              # of ten, for the widest range of a double
    MOST_POWER = 324
    DIGITS_AT_MOST = 20

cdef uint64_t[2 * (324 + 292 + 1)] POWERS          # 10**e in 128 bits, rounded up: high, low
cdef char[200] PAIRS                                # "000102...99"
cdef uint64_t[20] TENS


def _fill_tables():
    for e in range(LEAST_POWER, MOST_POWER + 1):
        power = 10 ** abs(e)
        if e >= 0:
            shift = power.bit_length() - 128
            number = power << -shift if shift <= 0 else -(-power >> shift)
        else:
            number = (1 << (127 + power.bit_length())) // power + 1
        POWERS[2 * (e - LEAST_POWER)] = number >> 64
        POWERS[2 * (e - LEAST_POWER) + 1] = number & 0xFFFFFFFFFFFFFFFF
    for i in range(100):
        PAIRS[2 * i] = 48 + i // 10
        PAIRS[2 * i + 1] = 48 + i % 10
    for i in range(20):
        TENS[i] = 10 ** i


_fill_tables()
del _fill_tables


cdef inline int32_t count_digits(uint64_t number) noexcept nogil:
    cdef int32_t count = 1
    while number >= 10000:
        number //= 10000
        count += 4
    if number >= 1000:
        return count + 3
    if number >= 100:
        return count + 2
    return count + 1 if number >= 10 else count


cdef inline void put_digits(char *end, uint64_t number, int32_t count) noexcept nogil:
    """Write `count` digits that end before `end`, with zeros in front."""
    cdef uint32_t pair
    while count >= 2:
        pair = <uint32_t>(number % 100)
        number //= 100
        end -= 2
        memcpy(end, &PAIRS[2 * pair], 2)
        count -= 2
    if count:
        end -= 1
        end[0] = <char>(48 + number % 10)


cdef char *write_padded(char *p, uint64_t number, int32_t digit_count) noexcept nogil:
    """The last `digit_count` digits, zeros in front; returns the end."""
    put_digits(p + digit_count, number, digit_count)
    return p + digit_count


cdef char *write_unsigned(char *p, uint64_t number) noexcept nogil:
    return write_padded(p, number, count_digits(number))


cdef char *write_integer(char *p, int64_t number) noexcept nogil:
    if number >= 0:
        return write_unsigned(p, <uint64_t>number)
    p[0] = c"-"
    return write_unsigned(p + 1, <uint64_t>0 - <uint64_t>number)


cdef inline uint64_t round_to_odd(uint64_t high, uint64_t low, uint64_t factor) noexcept nogil:
    """The top 64 bits of the 192-bit product, the last bit set if anything is below."""
    cdef uint64_t carry
    cdef uint64_t top
    cdef uint64_t middle
    multiply(low, factor, &carry)
    middle = multiply(high, factor, &top)
    middle += carry
    top += middle < carry
    return top | (middle > 1)


cdef int32_t shortest(uint64_t c, int32_t q, bint is_power, uint64_t *digits) noexcept nogil:
    """Digits and power of ten of the shortest decimal that rounds to c * 2**q; is_power: the gap below is the smaller."""
    cdef uint64_t is_odd = c & 1
    cdef int32_t k = (q * 1262611 - (524031 if is_power else 0)) >> 22
    cdef int32_t h = q + ((-k * 1741647) >> 19) + 1
    cdef uint64_t high = POWERS[2 * (-k - LEAST_POWER)]
    cdef uint64_t low = POWERS[2 * (-k - LEAST_POWER) + 1]
    cdef uint64_t lower = round_to_odd(high, low, (4 * c - (1 if is_power else 2)) << h) + is_odd
    cdef uint64_t exact = round_to_odd(high, low, (4 * c) << h)
    cdef uint64_t upper = round_to_odd(high, low, (4 * c + 2) << h) - is_odd
    cdef uint64_t s = exact // 4
    cdef uint64_t tens
    cdef bint below
    cdef bint above
    if s >= 100:                    # of two digits neither is dropped: Java wants at least two
        tens = s // 10
        below = lower <= 40 * tens
        above = 40 * tens + 40 <= upper
        if below != above:
            digits[0] = tens + above
            return k + 1
    below = lower <= 4 * s
    above = 4 * s + 4 <= upper
    if below != above:
        digits[0] = s + above
    else:
        above = exact > 4 * s + 2 or (exact == 4 * s + 2 and s % 2 == 1)
        digits[0] = s + above
    return k


cdef char *write_scientific(char *p, uint64_t digits, int32_t k) noexcept nogil:
    """digits * 10**k in Java's layout for floats; digits is not 0."""
    cdef char[24] text
    cdef int32_t count
    cdef int32_t exponent
    while digits % 10000 == 0:
        digits //= 10000
        k += 4
    while digits % 10 == 0:
        digits //= 10
        k += 1
    count = count_digits(digits)
    exponent = k + count - 1
    put_digits(text + count, digits, count)
    if 0 <= exponent < 7:
        if count <= exponent + 1:
            memset(p, c"0", <size_t>exponent + 2)
            memcpy(p, text, <size_t>count)
            p[exponent + 1] = c"."
            p[exponent + 2] = c"0"
            return p + exponent + 3
        memcpy(p, text, <size_t>exponent + 1)
        p[exponent + 1] = c"."
        memcpy(p + exponent + 2, text + exponent + 1, <size_t>(count - exponent - 1))
        return p + count + 1
    if -3 <= exponent < 0:
        memcpy(p, "0.000", 5)
        memcpy(p + 1 - exponent, text, <size_t>count)
        return p + 1 - exponent + count
    p[0] = text[0]
    p[1] = c"."
    if count == 1:
        p[2] = c"0"
        p += 3
    else:
        memcpy(p + 2, text + 1, <size_t>(count - 1))
        p += count + 1
    p[0] = c"E"
    return write_integer(p + 1, exponent)


cdef inline char *write_special(char *p, double number) noexcept nogil:
    """Not a number, in quotes: JSON has no word for it."""
    if isnan(number):
        memcpy(p, '"NaN"', 5)
        return p + 5
    if number < 0:
        memcpy(p, '"-Infinity"', 11)
        return p + 11
    memcpy(p, '"Infinity"', 10)
    return p + 10


cdef char *write_double(char *p, double number) noexcept nogil:
    """At most MOST_FLOAT_TEXT bytes; returns the end. NaN and infinities come out in quotes."""
    cdef uint64_t bits
    cdef uint64_t fraction
    cdef uint64_t digits
    cdef int32_t exponent
    cdef int32_t k
    cdef double size
    memcpy(&bits, &number, 8)
    fraction = bits & <uint64_t>0xFFFFFFFFFFFFF
    exponent = <int32_t>((bits >> 52) & 0x7FF)
    if exponent == 0x7FF:
        return write_special(p, number)
    if bits >> 63:
        p[0] = c"-"
        p += 1
        number = -number
    if number == 0:
        memcpy(p, "0.0", 3)
        return p + 3
    if 1e-3 <= number < 1e7:
        # Up to three places behind the point: ten digits at most, so the only candidate of its length.
        digits = <uint64_t>(number * 1000.0 + 0.5)
        size = <double>digits
        if size / 1000.0 == number:
            return write_thousandths(p, digits)
    if exponent == 0:
        if fraction < 3:
            # Java wants two digits, of which these few leave a choice.
            k = shortest(10 * fraction, -1074, False, &digits) - 1
        else:
            k = shortest(fraction, -1074, False, &digits)
    else:
        k = shortest(fraction | (<uint64_t>1 << 52), exponent - 1075, fraction == 0 and exponent > 1, &digits)
    return write_scientific(p, digits, k)


cdef inline char *write_thousandths(char *p, uint64_t number) noexcept nogil:
    """number / 1000 with one to three places behind the point."""
    cdef uint32_t places = <uint32_t>(number % 1000)
    p = write_unsigned(p, number // 1000)
    p[0] = c"."
    put_digits(p + 4, places, 3)
    if places % 10:
        return p + 4
    return p + 3 if places % 100 else p + 2


cdef char *write_float(char *p, float number) noexcept nogil:
    """Like write_double, with the digits that a float needs."""
    cdef uint32_t bits
    cdef uint64_t fraction
    cdef uint64_t digits
    cdef int32_t exponent
    cdef int32_t k
    memcpy(&bits, &number, 4)
    fraction = bits & <uint32_t>0x7FFFFF
    exponent = <int32_t>((bits >> 23) & 0xFF)
    if exponent == 0xFF:
        return write_special(p, number)
    if bits >> 31:
        p[0] = c"-"
        p += 1
    if fraction == 0 and exponent == 0:
        memcpy(p, "0.0", 3)
        return p + 3
    if exponent == 0:
        if fraction < 8:
            k = shortest(10 * fraction, -149, False, &digits) - 1
        else:
            k = shortest(fraction, -149, False, &digits)
    else:
        k = shortest(fraction | (<uint64_t>1 << 23), exponent - 150, fraction == 0 and exponent > 1, &digits)
    return write_scientific(p, digits, k)


cdef int32_t split_decimal(const uint8_t *number, int32_t width, char *text, bint *is_negative) noexcept nogil:
    """The digits of a two's complement integer of 4, 8 or 16 bytes, without zeros in front; returns how many."""
    cdef uint64_t parts[2]
    cdef uint64_t limbs[4]
    cdef uint64_t rest
    cdef uint64_t[5] groups
    cdef int32_t small
    cdef int64_t middle
    cdef int32_t group_count = 0
    cdef int32_t count
    cdef int32_t i
    if width == 16:
        memcpy(parts, number, 16)
    elif width == 8:
        memcpy(&middle, number, 8)
        parts[0] = <uint64_t>middle
        parts[1] = <uint64_t>(middle >> 63)
    else:
        memcpy(&small, number, 4)
        parts[0] = <uint64_t><int64_t>small
        parts[1] = <uint64_t><int64_t>(small >> 31)
    is_negative[0] = parts[1] >> 63
    if is_negative[0]:
        parts[0] = ~parts[0] + 1
        parts[1] = ~parts[1] + (parts[0] == 0)
    if parts[1] == 0:
        count = count_digits(parts[0])
        put_digits(text + count, parts[0], count)
        return count
    for i in range(4):
        limbs[i] = (parts[i // 2] >> (32 * (i % 2))) & <uint64_t>0xFFFFFFFF
    while limbs[0] | limbs[1] | limbs[2] | limbs[3]:
        rest = 0
        for i in range(3, -1, -1):
            rest = (rest << 32) | limbs[i]
            limbs[i] = rest // 1000000000
            rest %= 1000000000
        groups[group_count] = rest
        group_count += 1
    count = count_digits(groups[group_count - 1])
    put_digits(text + count, groups[group_count - 1], count)
    for i in range(group_count - 2, -1, -1):
        put_digits(text + count + 9, groups[i], 9)
        count += 9
    return count


cdef char *write_decimal(char *p, const uint8_t *number, int32_t width, int32_t scale) noexcept nogil:
    """An unscaled little-endian integer of `width` bytes with `scale` places; at most MOST_DECIMAL_TEXT bytes."""
    cdef char[48] text
    cdef bint is_negative = False
    cdef int32_t count = split_decimal(number, width, text, &is_negative)
    cdef int32_t exponent = count - 1 - scale
    if is_negative:
        p[0] = c"-"
        p += 1
    if scale == 0:
        memcpy(p, text, <size_t>count)
        return p + count
    if scale > 0 and exponent >= -6:
        if exponent >= 0:
            memcpy(p, text, <size_t>exponent + 1)
            p[exponent + 1] = c"."
            memcpy(p + exponent + 2, text + exponent + 1, <size_t>scale)
            return p + count + 1
        memcpy(p, "0.0000000", 9)
        memcpy(p + 1 - exponent, text, <size_t>count)
        return p + 1 - exponent + count
    p[0] = text[0]
    p += 1
    if count > 1:
        p[0] = c"."
        memcpy(p + 1, text + 1, <size_t>(count - 1))
        p += count
    if exponent != 0:
        p[0] = c"E"
        p[1] = c"-" if exponent < 0 else c"+"
        p = write_unsigned(p + 2, <uint64_t>(-exponent if exponent < 0 else exponent))
    return p
