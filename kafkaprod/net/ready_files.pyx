"""The waiting half of a poller: which of its files are ready. The other half, `poller.Poller`, changes what it watches.

Compiled, because the sender waits twice for each request, and each time the kernel and the broker have emptied the caches:
what costs then is the memory that the interpreter touches.
"""

from libc.stdint cimport int64_t

from kafkaprod._core.machine.clock cimport monotonic_ns
from kafkaprod.net.socket_calls cimport MOST_EVENTS, timeout_us_of, wait_files


cdef class ReadyFiles:
    """Base of `Poller`.

    Attributes:
        poll_count: Calls of the kernel in `poll`.
        wait_ns: Nanoseconds spent waiting there.
        wakeup: Called, it makes the current or next `poll` return at once; does nothing after `close`.
        to_wake: Called, and removed, right before `poll` waits.
    """

    def __cinit__(self, *_, **__):
        self.to_wake = []
        self._data = {}
        self._set_fd = -1
        self._wakeup_fd = -1

    def poll(self, timeout_ms):
        """Wait for readiness, a wakeup or the timeout; return (data, READABLE | WRITABLE) of each ready file.

        Args:
            timeout_ms: Longest wait, with fractions; 0 or less does not wait; None waits for ever.
        """
        cdef int[MOST_EVENTS] fds
        cdef int[MOST_EVENTS] masks
        cdef int count
        cdef int i
        cdef int64_t started_ns = monotonic_ns()
        cdef list events = []
        if self._set_fd < 0:
            ready = self._select(timeout_ms)
            self._note_wait(started_ns)
            for fd, mask in ready:
                self._add(events, fd, mask)
            return events
        count = wait_files(self._set_fd, timeout_us_of(timeout_ms), self.to_wake, fds, masks)
        self._note_wait(started_ns)
        for i in range(count):
            self._add(events, fds[i], masks[i])
        return events

    def _select(self, timeout_ms):
        """Return (descriptor, events) of what is ready, where the system has neither epoll nor kqueue."""
        raise NotImplementedError

    cdef int _note_wait(self, int64_t started_ns) except -1:
        self.wait_ns += monotonic_ns() - started_ns
        self.poll_count += 1
        return 0

    cdef int _add(self, list events, int fd, int mask) except -1:
        if fd == self._wakeup_fd:
            if self.wakeup is not None:
                self.wakeup.take()
        else:
            events.append((self._data[fd], mask))
        return 0
