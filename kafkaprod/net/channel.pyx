"""The part of a broker's connection that each request passes: its bytes to the socket, its answer from there.

`NodeConnection` and `NodeState` have the rest: connecting, logins, idle times, backoff, the end.

Compiled for the reason that `protocol.outgoing` gives.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from kafkaprod.net.socket_calls cimport NOTHING_NOW, receive_bytes, send_buffers
from kafkaprod.protocol.exchange cimport Exchange
from kafkaprod.protocol.outgoing cimport OutgoingBytes

cdef enum:
    READABLE = 1                # selectors.EVENT_READ
    MOST_BUFFERS = 1024         # of one write
    MAX_READS_PER_TURN = 16     # one busy broker must not starve the others


cdef class Channel:
    """Base of `NodeConnection`.

    Attributes:
        protocol: The requests and answers.
        failure: Why it closed; None while it lives.
        has_answered: Whether the broker answered a request beyond the handshake.
        last_active_ms: Last time a byte moved.
    """

    def __cinit__(self, *_, **__):
        self.protocol = Exchange(None, -1, [])
        self._fd = -1

    def flush(self, int64_t now_ms):
        """Write queued bytes to the socket, as many as it takes."""
        self.write(now_ms)

    cdef int write(self, int64_t now_ms) except -1:
        cdef OutgoingBytes out = self.protocol.outgoing
        cdef int64_t sent_bytes
        if self._transport is None:
            return 0
        while out.queued_position != out.sent_position:
            try:
                if self._fd >= 0:
                    sent_bytes = send_buffers(self._fd, out.first(MOST_BUFFERS))
                else:
                    sent_bytes = self._transport.send(out.first(MOST_BUFFERS))
            except OSError as error:
                self._close_for(error, "sending failed")
                return 0
            if sent_bytes == 0:
                break
            self.last_active_ms = now_ms
            self._metrics.bytes_sent += sent_bytes
            self.protocol.note_sent(sent_bytes, now_ms)
        if self.protocol.has_events:
            self._handle_events()
        # Mostly nothing is left, and the socket is watched for answers only: then there is nothing to change.
        if out.queued_position != out.sent_position or self._interest != READABLE or not self._is_plain:
            self._update_interest()
        return 0

    cdef int read(self, int64_t now_ms) except -1:
        """Read and write as far as the ready socket allows."""
        cdef OutgoingBytes out = self.protocol.outgoing
        cdef Py_buffer view
        cdef Py_ssize_t size
        cdef int reads = 0
        if self._transport is None:
            return 0
        if not self._is_open:
            self._advance(now_ms)
            return 0
        PyObject_GetBuffer(self._receive_buffer, &view, PyBUF_WRITABLE)
        try:
            while reads < MAX_READS_PER_TURN:
                reads += 1
                try:
                    size = self._receive_bytes(<char *>view.buf, view.len)
                except OSError as error:
                    self._on_receive_error(error)
                    return 0
                if size == NOTHING_NOW:
                    break
                if size == 0:
                    self._on_end_of_stream()
                    return 0
                self._take(<char *>view.buf, size, now_ms)
                if self.failure is not None or (size < view.len and self._is_plain):
                    break
        finally:
            PyBuffer_Release(&view)
        if out.queued_position != out.sent_position or self._interest != READABLE or not self._is_plain:
            self.write(now_ms)      # updates the interest
        return 0

    cdef Py_ssize_t _receive_bytes(self, char *target, Py_ssize_t room) except -1:
        if self._fd >= 0:
            return receive_bytes(self._fd, target, room)
        size = self._transport.receive_into(self._receive_buffer)
        return NOTHING_NOW if size is None else <Py_ssize_t>size

    cdef int _take(self, char *data, Py_ssize_t size, int64_t now_ms) except -1:
        """Take the bytes that were read into the receive buffer, which begins at `data`."""
        cdef Exchange protocol = self.protocol
        cdef int64_t answered = 0
        cdef Py_ssize_t taken
        self.last_active_ms = now_ms
        self._metrics.bytes_received += size
        taken = protocol.take_answers(data, size, now_ms, &answered)
        if taken < size:
            answered += <int64_t>protocol._receive_parts(self._receive_buffer[taken:size], now_ms)
        if answered > 0:
            self._metrics.responses_received += answered
            self.has_answered = True
        if protocol.has_events:
            self._handle_events()
        return 0

    # -- the rest, of NodeConnection -----------------------------------------------------------------------------------

    def _advance(self, int64_t now_ms):
        """Continue to connect: the socket is ready for it."""
        raise NotImplementedError

    def _update_interest(self):
        """Let the poller watch for what the transport waits for."""
        raise NotImplementedError

    def _handle_events(self):
        """Take the events of `protocol`."""
        raise NotImplementedError

    def _close_for(self, error, what):
        """End the connection."""
        raise NotImplementedError

    def _on_receive_error(self, error):
        """End the connection: it cannot be read from."""
        raise NotImplementedError

    def _on_end_of_stream(self):
        """End the connection: the broker has."""
        raise NotImplementedError


cdef class Link:
    """Base of `NodeState`: what decides whether a broker takes a request now.

    Attributes:
        connection: The current one, ready or not; None: none.
        metrics: Counters of all its connections.
        throttled_until_ms: Time before which nothing may be sent.
        is_steady: Whether its connection has no news but answers, so that the pool need not look at it after each.
    """

    def can_send(self, int64_t now_ms, Py_ssize_t max_in_flight):
        """Return whether it is connected, not throttled, has written its last request, and has room for one more."""
        return self.takes(now_ms, max_in_flight)

    cdef bint takes(self, int64_t now_ms, Py_ssize_t max_in_flight) except -1:
        if self.connection is None or now_ms < self.throttled_until_ms:
            return False
        return self.connection.protocol.takes(max_in_flight)
