"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) without the GIL. See checksum.pyx."""

from libc.stdint cimport uint32_t

cdef uint32_t extend_crc(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil
cdef uint32_t join_crc(uint32_t crc, uint32_t following, Py_ssize_t length) noexcept nogil
cdef uint32_t extend_crc_unfolded(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil
cdef uint32_t extend_crc_by_table(uint32_t crc, const char *data, Py_ssize_t length) noexcept nogil
