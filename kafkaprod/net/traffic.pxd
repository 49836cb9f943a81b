"""The requests and answers of a pool: see traffic.pyx."""

from libc.stdint cimport int64_t

from kafkaprod.net.channel cimport Link


cdef class Traffic:
    cdef public dict _states            # the brokers that may be sent to, by node id
    cdef public list _finished          # filled by the connections, emptied by `poll`
    cdef public dict _touched           # brokers whose connection may have news for `_collect`
    cdef public object _clock
    cdef public object _poller
    cdef public object _run_background  # delivers results of helper threads
    cdef public bint _has_failed        # a connection failed outside of `poll`, which then must not wait
    cdef public bint _is_closed
    cdef public int64_t _next_timer_ms  # not later than the earliest deadline of any connection
    cdef public int64_t _max_idle_ms
    cdef public Py_ssize_t _max_in_flight
    cdef bint _has_system_clock

    cdef int64_t _now_ms(self) except -1
    cdef Link _link(self, node_id)
    cdef Link _ready_link(self, node_id)
    cdef int _write(self, Link link, int64_t now_ms, int64_t deadline_ms) except -1
    cdef int _on_ready(self, connection, int64_t now_ms) except -1
