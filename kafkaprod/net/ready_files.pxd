"""The waiting half of a poller: see ready_files.pyx."""

from libc.stdint cimport int64_t

from kafkaprod._core.machine.waking cimport Wakeup


cdef class ReadyFiles:
    cdef readonly int64_t poll_count
    cdef readonly int64_t wait_ns
    cdef public list to_wake
    cdef public Wakeup wakeup
    cdef public dict _data          # by descriptor: what `poll` returns for it
    cdef public int _set_fd         # of the epoll set or kqueue; -1: `_select` waits
    cdef public int _wakeup_fd      # what `wakeup` makes readable; -1: none

    cdef int _note_wait(self, int64_t started_ns) except -1
    cdef int _add(self, list events, int fd, int mask) except -1
