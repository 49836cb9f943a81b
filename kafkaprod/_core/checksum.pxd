"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) through one seam: the crc32c package."""

from libc.stdint cimport uint32_t

cdef uint32_t extend_crc(uint32_t crc, const char *data, Py_ssize_t length) except? 0xFFFFFFFF
