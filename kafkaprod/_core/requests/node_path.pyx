"""What the way to one node carries: bytes in flight, rate and answer time; and what follows from them. Sender thread only.

| quantity | rule                                                                                                 |
|----------|------------------------------------------------------------------------------------------------------|
| rate     | most bytes a millisecond of the samples of the last 8 answer times (1 s to 10 s)                     |
| sample   | bytes delivered since the request was sent, by the time since the delivery before that               |
| idle     | nothing had to wait while the request was in flight: its sample can raise the rate, not lower it      |
| base     | least answer time in 10 s of requests that went while nothing was in flight; none: it stays          |
| known    | three rounds in which the rate grew by less than a quarter each                                      |
| window   | rate x twice the base, at least one second of it, at most a quarter of request_timeout_ms             |
| memory   | as the rate, of bytes before compression, from requests that left more behind to send                 |
| shown    | most bytes a millisecond, before compression, of all samples so far: the path carries no less          |
| usual    | smoothed answer time and four times its variation (RFC 6298); a late answer counts as twice as long   |
| room     | of a request: half a second of the rate up to the usual size; half of what the path holds if more     |

The window is a multiple of a maximum and of a minimum over time. Neither depends on the queue that the window makes, so
that it cannot swing: an answer counts the transfer of its own request, at most half a second or half a base. Several answers
in one read tell no higher rate than the span in which their bytes were delivered.
Source: BBR (draft-ietf-ccwg-bbr), Linux lib/win_minmax.c.
"""

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    LEAST_WINDOW = 65536
    LEAST_BATCH = 32768
    FAR_ROOM = 8388608              # of a request, where the path holds more
    BASE_SPAN_MS = 10_000
    LEAST_RATE_SPAN_MS = 1_000
    MOST_RATE_SPAN_MS = 10_000
    LEAST_WINDOW_MS = 1_000
    ROUNDS_TO_KNOW = 3
    FEW_IN_FLIGHT = 2               # so many requests go without a distance between them

ctypedef struct Best:
    # The best sample of a span, and the best ones of its last parts, for when that is too old.
    int64_t[3] time_ms
    double[3] value


cdef inline void _set(Best *best, int i, int64_t now_ms, double value) noexcept nogil:
    best.time_ms[i] = now_ms
    best.value[i] = value


cdef inline void _shift(Best *best, int64_t now_ms, double value) noexcept nogil:
    _set(best, 0, best.time_ms[1], best.value[1])
    _set(best, 1, best.time_ms[2], best.value[2])
    _set(best, 2, now_ms, value)


cdef double _note(Best *best, int64_t span_ms, int64_t now_ms, double value) noexcept nogil:
    """Return the largest value of the last `span_ms`, this one included."""
    cdef int i
    if value >= best.value[0] or now_ms - best.time_ms[2] > span_ms:
        for i in range(3):
            _set(best, i, now_ms, value)
        return value
    if value >= best.value[1]:
        _set(best, 1, now_ms, value)
        _set(best, 2, now_ms, value)
    elif value >= best.value[2]:
        _set(best, 2, now_ms, value)
    if now_ms - best.time_ms[0] > span_ms:
        _shift(best, now_ms, value)
        if now_ms - best.time_ms[0] > span_ms:
            _shift(best, now_ms, value)
    elif best.time_ms[1] == best.time_ms[0] and now_ms - best.time_ms[0] > span_ms // 4:
        _set(best, 1, now_ms, value)
        _set(best, 2, now_ms, value)
    elif best.time_ms[2] == best.time_ms[1] and now_ms - best.time_ms[0] > span_ms // 2:
        _set(best, 2, now_ms, value)
    return best.value[0]


@cython.final
cdef class Flight:
    """One request on its way; made by NodePath.on_sent()."""

    cdef readonly int64_t size_bytes
    cdef int64_t sent_ms
    cdef int64_t before_bytes       # in flight before it
    cdef int64_t delivered_bytes    # by then
    cdef int64_t delivered_ms       # the last time before
    cdef int64_t waits              # of the path, by then
    cdef int64_t plain_bytes        # before compression
    cdef int64_t delivered_plain
    cdef bint leaves_more           # to send


@cython.final
cdef class NodePath:
    """The way to one node. It outlives connections.

    Args:
        first_bytes: Window of a connection that has not answered yet.
        usual_room: Most bytes of batches in a request near by.
        is_bounded: Whether no request may be larger than that.
        request_timeout_ms: A quarter of it is the most that may be in flight.
        spacing_parts: Requests that may be in flight: the distance between them is so large a part of the base; 0: none.
    """

    cdef int64_t _first_bytes
    cdef int64_t _usual_room
    cdef bint _is_bounded
    cdef int64_t _most_window_ms
    cdef int64_t _spacing_parts
    cdef readonly int64_t in_flight_bytes
    cdef readonly int64_t in_flight_count
    cdef int64_t _delivered_bytes
    cdef int64_t _delivered_ms
    cdef int64_t _delivered_plain
    cdef int64_t _sent_ms
    cdef int64_t _waits
    cdef int64_t _answer_ms
    cdef double _mean_ms            # of answer times; -1: there was none
    cdef double _variation_ms
    cdef Best _rates
    cdef Best _memory_rates
    cdef Best _bases                # of negative answer times: the largest is the least
    cdef bint _has_answered         # this connection
    cdef readonly double rate       # bytes a millisecond; 0.0: none was measured
    cdef readonly double memory_rate    # as `rate`, of bytes before compression
    cdef readonly double shown_rate     # as `memory_rate`, also of requests that left nothing behind; never lower
    cdef readonly int64_t base_ms   # -1: none was measured
    cdef readonly int64_t answered_ms   # when the last answer came; -1: none did
    cdef readonly bint is_known
    cdef int64_t _round_end         # bytes delivered when all that is in flight now will be
    cdef bint _round_counts         # something had to wait in it
    cdef double _full_rate
    cdef int _full_rounds

    def __cinit__(self, int64_t first_bytes=262144, int64_t usual_room=2097152, bint is_bounded=False,
                  int64_t request_timeout_ms=30_000, int64_t spacing_parts=5):
        self._first_bytes = max(first_bytes, LEAST_WINDOW)
        self._usual_room = usual_room
        self._is_bounded = is_bounded
        self._most_window_ms = max(request_timeout_ms // 4, 1)
        self._spacing_parts = spacing_parts
        self.base_ms = -1
        self.answered_ms = -1
        self._mean_ms = -1

    def on_sent(self, int64_t size_bytes, int64_t now_ms, int64_t plain_bytes=0, bint leaves_more=False):
        """Note a request; return its Flight, for on_answer() or on_lost().

        Args:
            plain_bytes: The bytes of its batches before compression.
            leaves_more: Whether there was more to send to the node.
        """
        cdef Flight flight = Flight.__new__(Flight)
        if self.in_flight_count == 0:
            self._delivered_ms = now_ms
        flight.size_bytes = size_bytes
        flight.sent_ms = now_ms
        flight.before_bytes = self.in_flight_bytes
        flight.delivered_bytes = self._delivered_bytes
        flight.delivered_ms = self._delivered_ms
        flight.waits = self._waits
        flight.plain_bytes = plain_bytes
        flight.delivered_plain = self._delivered_plain
        flight.leaves_more = leaves_more
        self.in_flight_bytes += size_bytes
        self.in_flight_count += 1
        self._sent_ms = now_ms
        return flight

    def on_waiting(self):
        """Note that something is ready for the node and may not be sent."""
        self._waits += 1

    def on_answer(self, Flight flight not None, int64_t now_ms):
        """Note that the node has answered a request."""
        cdef bint had_to_wait = self._waits != flight.waits
        cdef double sample
        cdef double plain_sample
        cdef int64_t span_ms
        self._end(flight)
        self._has_answered = True
        self._delivered_bytes += flight.size_bytes
        self._delivered_plain += flight.plain_bytes
        self._delivered_ms = now_ms
        self.answered_ms = now_ms
        self._answer_ms = now_ms - flight.sent_ms
        self._note_usual()
        span_ms = max(now_ms - flight.delivered_ms, 1)
        sample = <double>(self._delivered_bytes - flight.delivered_bytes) / span_ms
        plain_sample = <double>(self._delivered_plain - flight.delivered_plain) / span_ms
        span_ms = min(max(8 * self._answer_ms, LEAST_RATE_SPAN_MS), MOST_RATE_SPAN_MS)
        if had_to_wait or sample > self.rate:
            self.rate = _note(&self._rates, span_ms, now_ms, sample)
        self.shown_rate = max(self.shown_rate, plain_sample)
        if flight.leaves_more or 0 < self.memory_rate < plain_sample:
            self.memory_rate = _note(&self._memory_rates, span_ms, now_ms, plain_sample)
        if flight.before_bytes == 0:
            if self.base_ms < 0:
                _set(&self._bases, 0, now_ms, -<double>self._answer_ms)
                _set(&self._bases, 1, now_ms, -<double>self._answer_ms)
                _set(&self._bases, 2, now_ms, -<double>self._answer_ms)
            self.base_ms = <int64_t>-_note(&self._bases, BASE_SPAN_MS, now_ms, -<double>self._answer_ms)
        self._round_counts = self._round_counts or had_to_wait
        if flight.delivered_bytes >= self._round_end:
            self._end_round()

    cdef void _note_usual(self) noexcept:
        cdef double sample_ms = <double>self._answer_ms
        if self._mean_ms < 0:
            self._mean_ms = sample_ms
            self._variation_ms = sample_ms / 2
            return
        sample_ms = min(sample_ms, 2 * self._usual() + 1)   # one that was sick is not slow for ever
        self._variation_ms += (abs(self._mean_ms - sample_ms) - self._variation_ms) / 4
        self._mean_ms += (sample_ms - self._mean_ms) / 8

    cdef double _usual(self) noexcept:
        return self._mean_ms + 4 * self._variation_ms

    @property
    def usual_ms(self):
        """In how many ms nearly all answers come; -1: none did."""
        return -1 if self._mean_ms < 0 else <int64_t>self._usual() + 1

    @property
    def silent_since_ms(self):
        """When the last answer came or, after it, a request was sent; it means something while one is in flight."""
        return self._delivered_ms

    cdef void _end(self, Flight flight) noexcept:
        self.in_flight_bytes -= flight.size_bytes
        self.in_flight_count -= 1

    cdef void _end_round(self) noexcept:
        self._round_end = self._delivered_bytes
        if not self._round_counts:
            return
        self._round_counts = False
        if self.rate >= 1.25 * self._full_rate:
            self._full_rate = self.rate
            self._full_rounds = 0
        elif self._full_rounds < ROUNDS_TO_KNOW:
            self._full_rounds += 1
        self.is_known = self.is_known or self._full_rounds >= ROUNDS_TO_KNOW

    def on_lost(self, Flight flight not None):
        """Note that a request has ended without an answer, and its connection with it: the next begins slowly."""
        self._end(flight)
        self._has_answered = False

    def on_throttle(self, int64_t throttle_ms):
        """Note that the node wants nothing for this time: what was measured does not grow older in it."""
        cdef int i
        for i in range(3):
            self._rates.time_ms[i] += throttle_ms
            self._memory_rates.time_ms[i] += throttle_ms
            self._bases.time_ms[i] += throttle_ms

    @property
    def window_bytes(self):
        """Bytes in flight below which another request may go."""
        return self._window()

    cdef int64_t _window(self) noexcept:
        return self._measured_window() if self._has_answered else self._first_bytes

    cdef int64_t _measured_window(self) noexcept:
        cdef int64_t span_ms
        span_ms = min(max(2 * self.base_ms, LEAST_WINDOW_MS), self._most_window_ms)
        return max(<int64_t>(self.rate * span_ms), LEAST_WINDOW)

    def may_send(self):
        """Whether another request may go; one is always allowed, whatever its size."""
        return self.in_flight_count == 0 or self.in_flight_bytes < self._window()

    def room_bytes(self):
        """Most bytes of batches in the next request."""
        cdef int64_t near = self._first_bytes // 2
        cdef int64_t far
        if self._has_answered:
            near = max(<int64_t>(self.rate * LEAST_WINDOW_MS / 2), LEAST_BATCH)
        near = min(self._usual_room, near)
        if self._is_bounded or not self._has_answered or self.base_ms < 0:
            return near
        far = min(max(<int64_t>FAR_ROOM, self._usual_room), <int64_t>(self.rate * self.base_ms / 2))
        return max(near, far)

    def most_batch_bytes(self):
        """Bytes that a batch may grow to; 0: as far as any.

        Those of the first window before there was an answer: on a thin path a larger batch takes seconds, and its first
        record is acknowledged with its last. On a narrow path that is known, half of its window, as a power of two.
        """
        cdef int64_t most = LEAST_BATCH
        cdef int64_t half = self._measured_window() // 2
        if self.answered_ms < 0:
            return self._first_bytes
        if not self.is_known or half >= FAR_ROOM:
            return 0
        while 2 * most <= half:
            most *= 2
        return most

    def wait_ms(self, int64_t now_ms):
        """How long the next request waits to keep its distance: spread over the answer time they do not bunch."""
        cdef int64_t distance_ms
        if self.in_flight_count < FEW_IN_FLIGHT or self._spacing_parts == 0 or self.base_ms < 0:
            return 0
        distance_ms = self.base_ms // self._spacing_parts
        return max(self._sent_ms + distance_ms - now_ms, 0)
