"""The part of a pool that each request passes: is a broker ready, send, wait, what has ended.

`NodePool` has the rest: which brokers there are, connecting, timers, failures.

Compiled for the reason that `protocol.outgoing` gives.
"""

from libc.stdint cimport INT64_MAX, int64_t

from kafkaprod._core.machine.clock cimport monotonic_us
from kafkaprod.net.channel cimport Channel, Link

from kafkaprod.clock import SystemClock
from kafkaprod.errors import ConnectionLostError
from kafkaprod.protocol.frames import MAX_FRAME_BYTES


cdef class Traffic:
    """Base of `NodePool`.

    Args:
        clock: Measures every timeout.
    """

    def __cinit__(self, *_, **__):
        self._states = {}
        self._finished = []
        self._touched = {}
        self._next_timer_ms = INT64_MAX

    def __init__(self, clock):
        self._clock = clock
        self._has_system_clock = type(clock) is SystemClock

    cdef int64_t _now_ms(self) except -1:
        return monotonic_us() // 1000 if self._has_system_clock else <int64_t>self._clock.now_ms()

    def is_ready(self, node_id, int64_t now_ms):
        """Return whether a request may be sent to the node now. Starts to connect if it is not connected and may be."""
        cdef Link link = self._link(node_id)
        if link is None:
            return False
        if link.connection is None:
            self._connect(link, now_ms)
        return link.takes(now_ms, self._max_in_flight)

    def api_version(self, node_id, api_key, int our_min, int our_max):
        """Return the highest version of an API that both sides support; None without one or without a connection."""
        cdef Link link = self._link(node_id)
        return None if link is None or link.connection is None \
            else link.connection.protocol.usable_version(api_key, our_min, our_max)

    def in_flight_count(self, node_id):
        """Return the number of requests without an outcome."""
        cdef Link link = self._link(node_id)
        return 0 if link is None or link.connection is None else link.connection.protocol.in_flight_count

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, node_id, request not None, *, on_done, int64_t now_ms, int64_t timeout_ms, version=None):
        """Send a declared request to a node that is ready; its outcome comes out of `poll`.

        If the node supports no version of it, the outcome is an UnsupportedVersionError.

        Args:
            node_id, request: What goes where.
            on_done: Called by the loop with the `InFlightRequest`, which carries the decoded response, and the time.
            now_ms: The time.
            timeout_ms: How long to wait for the response; the connection is closed when it passes.
            version: None: the highest that both sides support.

        Raises:
            IllegalStateError: The node is not ready; nothing was sent.
        """
        cdef Link link = self._ready_link(node_id)
        cdef int usable
        lowest, highest = request.versions if version is None else (version, version)
        usable = link.connection.protocol.usable(request.api, lowest, highest)
        if usable < 0:
            self._refuse(link, request, lowest, highest, on_done, now_ms)
            return
        link.connection.protocol.send_request(request, usable, on_done, now_ms, timeout_ms)
        self._write(link, now_ms, now_ms + timeout_ms)

    def send_body(self, node_id, api_key, int version, parts not None, int64_t size, *, on_done, int64_t now_ms,
                  int64_t timeout_ms, bint expects_response=True, int64_t max_response_bytes=MAX_FRAME_BYTES):
        """Send a request whose body is encoded already; its outcome carries the raw response body.

        The parts are not copied: they must not change before the request has come out of `poll`.
        Arguments and errors as in `protocol.client.Connection.send_body`.
        """
        cdef Link link = self._ready_link(node_id)
        link.connection.protocol.send_parts(
            api_key, version, parts, size, on_done, now_ms, timeout_ms, expects_response, max_response_bytes
        )
        self._write(link, now_ms, now_ms + timeout_ms)

    cdef Link _link(self, node_id):
        return self._states.get(node_id)

    cdef Link _ready_link(self, node_id):
        cdef Link link = self._link(node_id)
        if link is None or link.connection is None or not link.connection.protocol.is_ready:
            self._raise_not_ready(node_id)
        return link

    cdef int _write(self, Link link, int64_t now_ms, int64_t deadline_ms) except -1:
        cdef Channel connection = link.connection
        link.metrics.requests_sent += 1
        connection.write(now_ms)
        if not link.is_steady or connection.failure is not None:
            self._touched[link] = None
        elif deadline_ms < self._next_timer_ms:
            self._next_timer_ms = deadline_ms
        return 0

    # -- the loop ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms):
        """Move bytes for at most `timeout_ms`; return the requests that have ended, in order for each node.

        Returns at once when some have ended already, and early for any readiness, deadline or `wakeup`.
        """
        cdef int64_t now_ms
        if self._is_closed:
            self._check_open()      # raises
        now_ms = self._now_ms()
        if self._touched:
            self._collect(now_ms)
        if self._finished or self._has_failed:
            timeout_ms = 0
        ready = self._poller.poll(min(timeout_ms, max(self._next_timer_ms - now_ms, 0)))
        now_ms = self._now_ms()
        self._run_background()
        for connection, _ in ready:
            self._on_ready(connection, now_ms)
        if now_ms >= self._next_timer_ms:
            self._run_timers(now_ms)
        if self._touched:
            self._collect(now_ms)
        self._has_failed = False
        return self._take_finished(now_ms) if self._finished else []

    cdef int _on_ready(self, connection, int64_t now_ms) except -1:
        cdef Channel channel = connection
        cdef Link link = self._link(channel.protocol._node_id)
        if link is None or link.connection is not channel:
            link = self._owner_of(channel)
            if link is None:
                return 0        # it was closed in this call
        if not link.is_steady or now_ms + self._max_idle_ms < self._next_timer_ms:
            self._touched[link] = None
        try:
            channel.read(now_ms)
        except MemoryError:     # bytes may be lost: the rest of this connection is unreadable
            self.disconnect(link.node.node_id, ConnectionLostError("no memory for a response"))
            raise
        if channel.failure is not None:
            self._touched[link] = None
        return 0

    # -- the rest, of NodePool -----------------------------------------------------------------------------------------

    def _connect(self, Link link, int64_t now_ms):
        """Begin to connect, if that is allowed now."""
        raise NotImplementedError

    def _owner_of(self, Channel connection):
        """Return the broker that has this connection; None if it was replaced."""
        raise NotImplementedError

    def _refuse(self, Link link, request, lowest, highest, on_done, int64_t now_ms):
        """Let a request end whose versions the broker does not support."""
        raise NotImplementedError

    def _raise_not_ready(self, node_id):
        """Raise IllegalStateError."""
        raise NotImplementedError

    def _check_open(self):
        """Raise IllegalStateError if the pool is closed."""
        raise NotImplementedError

    def _run_timers(self, int64_t now_ms):
        """Let every connection check the time."""
        raise NotImplementedError

    def _collect(self, int64_t now_ms):
        """Collect state and next deadline of the connections in `_touched`."""
        raise NotImplementedError

    def _take_finished(self, int64_t now_ms):
        """Return the requests that have ended, and forget them."""
        raise NotImplementedError

    def disconnect(self, node_id, error):
        """Close the connection to a node, if any, and back off."""
        raise NotImplementedError
