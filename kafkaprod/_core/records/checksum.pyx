"""CRC-32C by the machine's own instructions, by tables where it has none. Any thread, without the GIL; pure.

The instruction takes 8 bytes and answers three cycles later, but takes the next 8 a cycle later: so long data are read
in three streams side by side, whose CRCs are put together at the end. A CRC is a polynomial modulo another one, and a CRC
that n more bytes follow is multiplied by x**(8 * n): for the two lengths of a stream that product is looked up, byte by
byte, in tables; for any other length it is multiplied. Inside this file "crc" is the raw register; only `extend_crc`
inverts it at the end, and `join_crc` takes either.

Machines that multiply polynomials of 64 bits, four pairs by one instruction, are twice as fast with long data: 256 bytes
are folded onto the next 256, again and again, because bits that n more bits follow are multiplied by x**n; the rest at
the end is read by the CRC instruction.

Source: RFC 3720, appendix B.4 (vectors); Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32
Instruction", Intel, 2011 (streams); Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
Instruction", Intel, 2009 (folding); Kounavis and Berry, "A Systematic Approach to Building High Performance
Software-Based CRC Generators", Intel, 2005 (eight bytes by table).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from "kafkaprod/_core/machine/machine.h":
    int kp_has_crc() noexcept nogil
    # Little-endian machines only, as a word loaded from memory must have its first byte lowest.
    uint64_t kp_crc_word(uint64_t crc, uint64_t word) noexcept nogil
    uint64_t kp_crc_byte(uint64_t crc, uint8_t byte) noexcept nogil

cdef extern from "kafkaprod/_core/machine/crc_folding.h":
    int kp_has_folding() noexcept nogil
    uint64_t kp_crc_folded(uint64_t crc, const char *data, Py_ssize_t blocks, const uint64_t *far,
                           const uint64_t *near) noexcept nogil

cdef enum:
    POLYNOMIAL = 0x82F63B78
    FOLDED_BLOCK = 256          # bytes
    FOLDED_FROM = 2048          # bytes; from about 1,000 it is faster than streams
    LONG_STREAM = 4096          # bytes; putting streams together costs as much as 50
    SHORT_STREAM = 256

# Shift[k][b]: the contribution of CRC byte k with value b once the stream's length of zeros follows.
ctypedef uint32_t[4][256] Shift

cdef bint _has_instruction = kp_has_crc()
cdef bint _has_folding = _has_instruction and kp_has_folding()
cdef uint32_t[8][256] _tables           # _tables[k][b]: the CRC of byte b and k zeros behind it
cdef Shift _long_shift
cdef Shift _short_shift
cdef uint64_t[2] _over_256
cdef uint64_t[2] _over_64
cdef uint32_t[4][256] _powers           # _powers[k][j]: x**(8 * j * 256**k), the factor of a CRC that so many bytes follow


cdef void _fill_tables() noexcept:
    cdef uint32_t crc
    cdef int i
    cdef int k
    cdef int _
    for i in range(256):
        crc = <uint32_t>i
        for _ in range(8):
            crc = (crc >> 1) ^ (<uint32_t>POLYNOMIAL if crc & 1 else 0)
        _tables[0][i] = crc
    for k in range(1, 8):
        for i in range(256):
            crc = _tables[k - 1][i]
            _tables[k][i] = _tables[0][crc & 0xFF] ^ (crc >> 8)


cdef void _fill_shift(Shift *shift, Py_ssize_t length) noexcept:
    cdef uint64_t crc
    cdef Py_ssize_t _
    cdef int k
    cdef int i
    for k in range(4):
        for i in range(8):
            crc = <uint64_t>1 << (8 * k + i)
            for _ in range(length // 8):
                crc = kp_crc_word(crc, 0)
            shift[0][k][1 << i] = <uint32_t>crc
        shift[0][k][0] = 0
        for i in range(1, 256):         # sums of its bits
            shift[0][k][i] = shift[0][k][i & (i - 1)] ^ shift[0][k][i & -i]


cdef uint32_t _product(uint32_t a, uint32_t b) noexcept nogil:
    """Multiply two polynomials of degree below 32, the highest bit standing for 1, modulo POLYNOMIAL."""
    cdef uint32_t product = 0
    while a != 0:
        if a & <uint32_t>0x80000000:
            product ^= b
        a <<= 1
        b = (b >> 1) ^ (<uint32_t>POLYNOMIAL if b & 1 else 0)
    return product


cdef void _fill_powers() noexcept:
    cdef uint32_t step = 1 << 23        # x**8
    cdef int k
    cdef int j
    for k in range(4):
        _powers[k][0] = <uint32_t>1 << 31
        for j in range(1, 256):
            _powers[k][j] = _product(_powers[k][j - 1], step)
        step = _product(_powers[k][255], step)


cdef void _fill_factors(uint64_t *pair, Py_ssize_t length) noexcept:
    """Set the two factors that move 16 bytes onto the 16 `length` bytes behind them: of their first 8, their last 8."""
    pair[0] = <uint64_t>_factor(length + 4) << 1     # the instruction's product lacks its lowest bit
    pair[1] = <uint64_t>_factor(length - 4) << 1


cdef uint32_t _factor(Py_ssize_t length) noexcept:
    """Return the factor of a CRC that `length` bytes (below 64 KiB) follow."""
    return _product(_powers[1][length >> 8], _powers[0][length & 0xFF])


_fill_tables()
_fill_powers()
_fill_factors(_over_256, 256)
_fill_factors(_over_64, 64)
if _has_instruction:
    _fill_shift(&_long_shift, LONG_STREAM)
    _fill_shift(&_short_shift, SHORT_STREAM)


cdef inline uint64_t _word(const char *data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline uint64_t _shifted(const Shift *shift, uint64_t crc) noexcept nogil:
    return shift[0][0][crc & 0xFF] ^ shift[0][1][crc >> 8 & 0xFF] ^ shift[0][2][crc >> 16 & 0xFF] ^ shift[0][3][crc >> 24]


cdef inline uint64_t _three_streams(uint64_t crc, const char *data, Py_ssize_t length, const Shift *shift) noexcept nogil:
    """Carry on over three times `length` bytes, which are a multiple of 16."""
    cdef uint64_t second = 0
    cdef uint64_t third = 0
    cdef const char *end = data + length
    while data < end:
        crc = kp_crc_word(crc, _word(data))
        second = kp_crc_word(second, _word(data + length))
        third = kp_crc_word(third, _word(data + 2 * length))
        crc = kp_crc_word(crc, _word(data + 8))
        second = kp_crc_word(second, _word(data + length + 8))
        third = kp_crc_word(third, _word(data + 2 * length + 8))
        data += 16
    return _shifted(shift, _shifted(shift, crc) ^ second) ^ third


cdef uint64_t _by_instruction(uint64_t crc, const char *data, Py_ssize_t length) noexcept nogil:
    while length >= 3 * LONG_STREAM:
        crc = _three_streams(crc, data, LONG_STREAM, &_long_shift)
        data += 3 * LONG_STREAM
        length -= 3 * LONG_STREAM
    while length >= 3 * SHORT_STREAM:
        crc = _three_streams(crc, data, SHORT_STREAM, &_short_shift)
        data += 3 * SHORT_STREAM
        length -= 3 * SHORT_STREAM
    while length >= 8:
        crc = kp_crc_word(crc, _word(data))
        data += 8
        length -= 8
    while length > 0:
        crc = kp_crc_byte(crc, <uint8_t>data[0])
        data += 1
        length -= 1
    return crc


cdef uint32_t _by_table(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil:
    cdef const uint8_t *at = <const uint8_t *>data
    while length >= 8:
        crc ^= at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        crc = (_tables[7][crc & 0xFF] ^ _tables[6][crc >> 8 & 0xFF] ^ _tables[5][crc >> 16 & 0xFF] ^ _tables[4][crc >> 24]
               ^ _tables[3][at[4]] ^ _tables[2][at[5]] ^ _tables[1][at[6]] ^ _tables[0][at[7]])
        at += 8
        length -= 8
    while length > 0:
        crc = _tables[0][(crc ^ at[0]) & 0xFF] ^ (crc >> 8)
        at += 1
        length -= 1
    return crc


cdef uint32_t extend_crc(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil:
    """Carry `crc` on over `length` bytes at `data`; start with 0."""
    cdef Py_ssize_t blocks
    if _has_folding and length >= FOLDED_FROM:
        blocks = length // FOLDED_BLOCK
        crc = ~<uint32_t>kp_crc_folded(<uint32_t>~crc, data, blocks, _over_256, _over_64)
        data += blocks * FOLDED_BLOCK
        length -= blocks * FOLDED_BLOCK
    return extend_crc_unfolded(crc, data, length)


cdef uint32_t extend_crc_unfolded(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil:
    """Do the same as a machine that does not fold."""
    if _has_instruction:
        return ~<uint32_t>_by_instruction(<uint32_t>~crc, data, length)
    return ~_by_table(~crc, data, length)


cdef uint32_t join_crc(uint32_t crc, uint32_t following, Py_ssize_t length) noexcept nogil:
    """Return the CRC of bytes whose CRC is `crc` and `length` bytes (below 4 GiB) behind them whose own is `following`."""
    cdef int k = 0
    while length > 0:
        if length & 0xFF:
            crc = _product(_powers[k][length & 0xFF], crc)
        length >>= 8
        k += 1
    return crc ^ following


cdef uint32_t extend_crc_by_table(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil:
    """Do the same as a machine that has no instruction for it."""
    return ~_by_table(~crc, data, length)


def checksum(data, uint32_t crc=0):
    """Return the CRC-32C of a bytes-like object, carried on from `crc`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = extend_crc(crc, <const char *>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc
