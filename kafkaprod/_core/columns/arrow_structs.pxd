"""The three structs of the Arrow C data and C stream interfaces, as the specification prints them.

Source: Arrow C data interface, "Structure definitions"; Arrow C stream interface. A struct whose `release` is NULL is
released or moved away: nothing of it may be read.
"""

from libc.stdint cimport int64_t


cdef struct ArrowSchema:
    const char *format
    const char *name
    const char *metadata
    int64_t flags
    int64_t n_children
    ArrowSchema **children
    ArrowSchema *dictionary
    void (*release)(ArrowSchema *) noexcept
    void *private_data


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept
    void *private_data


cdef struct ArrowArrayStream:
    # Producers may run queries or take the GIL themselves in get_next(): it is called without.
    int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
    int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
    const char *(*get_last_error)(ArrowArrayStream *) noexcept
    void (*release)(ArrowArrayStream *) noexcept
    void *private_data
