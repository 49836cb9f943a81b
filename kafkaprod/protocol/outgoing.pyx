"""The queue of bytes for a socket: buffers that are consumed from the front, at any byte.

Buffers are referenced, never copied, and released as soon as their last byte was taken; the owner of the memory relies
on that. Positions are bytes since the connection began, so "fully sent" is one comparison.

Compiled, because each request passes here when the kernel has just emptied the caches: what costs then is the memory that
the interpreter touches, not what it computes.
"""

cimport cython
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int64_t

from collections import deque


@cython.final
cdef class OutgoingBytes:
    """The queue of one connection.

    Attributes:
        queued_position: Position after the last queued byte.
        sent_position: Position after the last byte taken; equal to the above when the queue is empty.
    """

    def __cinit__(self):
        self._parts = deque()

    def __len__(self):
        return self.queued_position - self.sent_position

    def append(self, parts not None):
        """Queue buffers and chains; return the position after their last byte. Empty ones are dropped."""
        for part in parts:
            self.add(part)
        return self.queued_position

    cdef int add(self, part) except -1:
        """Queue a buffer or chain, unless it is empty."""
        cdef int64_t size
        if type(part) is bytes:
            part = PyMemoryView_FromObject(part)
        elif isinstance(part, (bytes, bytearray, memoryview)):
            part = memoryview(part).cast("B")
        size = part.nbytes
        if size:
            self._parts.append(part)
            self.queued_position += size
        return 0

    def front(self, Py_ssize_t limit):
        """Return at most `limit` buffers, beginning with the first byte that was not taken; valid until `advance`."""
        return self.first(limit)

    cdef list first(self, Py_ssize_t limit):
        cdef list buffers = []
        cdef int64_t start = self._taken
        for part in self._parts:
            if type(part) is memoryview:
                buffers.append(part)
            else:
                buffers += part.from_byte(start, limit - len(buffers))
            start = 0
            if len(buffers) >= limit:
                break
        return buffers

    def advance(self, int64_t nbytes):
        """Drop `nbytes` from the front.

        Raises:
            ValueError: `nbytes` is more than is queued, or negative; nothing has changed.
        """
        self.drop(nbytes)

    cdef int drop(self, int64_t nbytes) except -1:
        cdef int64_t left
        cdef int64_t size
        if not 0 <= nbytes <= self.queued_position - self.sent_position:
            raise ValueError(f"{nbytes} bytes reported as sent, but {len(self)} are queued")
        self.sent_position += nbytes
        while nbytes:
            part = self._parts[0]
            size = part.nbytes
            left = size - self._taken
            if nbytes < left:
                if type(part) is memoryview:
                    self._parts[0] = part[nbytes:]
                    part.release()
                else:
                    self._taken += nbytes
                return 0
            nbytes -= left
            self._drop_first()
        return 0

    def clear(self):
        """Drop and release everything that was not taken. Positions do not change."""
        while self._parts:
            self._drop_first()
        self.queued_position = self.sent_position

    cdef int _drop_first(self) except -1:
        part = self._parts.popleft()
        self._taken = 0
        if type(part) is memoryview:
            part.release()
        return 0
