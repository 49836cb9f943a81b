"""The system calls of the sender's loop, for compiled callers: see socket_calls.pyx."""

from libc.stdint cimport int64_t

cdef extern from "kafkaprod/net/socket_calls.h" nogil:
    const int MOST_EVENTS "KP_MOST_EVENTS"      # of one wait; the others come with the next

cdef enum:
    NOTHING_NOW = -2


cdef int wait_files(int set_fd, long long timeout_us, list to_wake, int *fds, int *masks) except -1
cdef long long timeout_us_of(timeout_ms) except? -2
cdef int64_t send_buffers(int fd, buffers) except -1
cdef Py_ssize_t receive_bytes(int fd, char *target, Py_ssize_t room) except -1
