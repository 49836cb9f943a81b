"""Numbers as the text that Java gives them; what JSON, keys and decimals need. See number_text.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    MOST_INTEGER_TEXT = 20          # bytes: -9223372036854775808
    MOST_FLOAT_TEXT = 32            # -2.2250738585072014E-308
    MOST_DECIMAL_TEXT = 96          # 39 digits, sign, point, up to 6 zeros in front, exponent


cdef char *write_integer(char *p, int64_t number) noexcept nogil
cdef char *write_unsigned(char *p, uint64_t number) noexcept nogil
cdef char *write_padded(char *p, uint64_t number, int32_t digit_count) noexcept nogil
cdef char *write_double(char *p, double number) noexcept nogil
cdef char *write_float(char *p, float number) noexcept nogil
cdef char *write_decimal(char *p, const uint8_t *number, int32_t width, int32_t scale) noexcept nogil
