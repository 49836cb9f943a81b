"""The sender falls asleep while another thread appends: the stores and loads of both, as the core makes them.

Two threads of real processors, in rounds, with nothing else between the two stores and the two loads, so that a lost
wake-up comes as often as it can. What a round does is that of `append_locked()` and `tell_sender()`, and of
`set_sender_sleeps()` and `ready()`, with the core's own helpers. A round is lost if the appender saw no sleeper and the
sleeper saw no batch. With a GIL both sides hold it as in the core, whose order it is.
"""

from libc.stdlib cimport free
from libc.string cimport memset

from kafkaprod._core.machine.lock cimport (
    FREE_THREADED, fence, load32, mutex_lock, mutex_t, mutex_unlock, observe32, publish32, store32,
)

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **p, size_t alignment, size_t size)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    LINE = 64
    COLD_BYTES = 1 << 26        # no cache has it: what the appender writes there waits in front of its other stores
    COLD_LINES = 8
    SPINS = 200


cdef struct Shared:
    mutex_t lock
    int queue_length
    char[LINE] _1
    int awaited
    char[LINE] _2
    int appender_round          # 2n - 1: in round n; 2n: has ended it
    int seen_awaited
    char[LINE] _3
    int sleeper_round
    char[LINE] _4
    int other                   # what else the sleeper writes: its flag waits behind that
    char[LINE] _5


cdef int _meet(int *own, int *other, int number) noexcept nogil:
    """Wait until the other thread has come as far; return whether it has, and is not ended."""
    cdef int spins = 0
    publish32(own, number)
    fence()
    while 0 <= observe32(other) < number:
        spins += 1
        if spins > SPINS:
            sched_yield()
    return observe32(other) >= 0


cdef class SleepOrder:
    """One appender and one sleeper, each in a thread of its own. `has_fences`: False leaves out both, which is wrong."""

    cdef Shared *_shared
    cdef char *_cold
    cdef bint _has_fences

    def __cinit__(self, has_fences=True):
        self._has_fences = has_fences
        if posix_memalign(<void **>&self._shared, LINE, sizeof(Shared)) or posix_memalign(
            <void **>&self._cold, LINE, COLD_BYTES
        ):
            raise MemoryError
        memset(self._shared, 0, sizeof(Shared))
        memset(self._cold, 1, COLD_BYTES)

    def __dealloc__(self):
        free(self._shared)
        free(self._cold)

    cdef void _append(self, int number) noexcept nogil:
        cdef Shared *s = self._shared
        cdef int k
        mutex_lock(&s.lock)
        for k in range(COLD_LINES):
            self._cold[<unsigned int>(number * COLD_LINES + k) * 2654435761U % COLD_BYTES] = 1
        store32(&s.queue_length, s.queue_length + 1)
        mutex_unlock(&s.lock)

    cdef int _tell(self) noexcept nogil:
        if self._has_fences:
            fence()
        return load32(&self._shared.awaited)

    cdef int _scan(self) noexcept nogil:
        store32(&self._shared.awaited, 1)
        if self._has_fences:
            fence()
        return load32(&self._shared.queue_length)

    def append(self, int rounds):
        """Run the appender's side of so many rounds."""
        cdef Shared *s = self._shared
        cdef int number
        with nogil:
            for number in range(1, rounds + 1):
                if not _meet(&s.appender_round, &s.sleeper_round, 2 * number - 1):
                    break
                self._append(number)
                if FREE_THREADED:
                    s.seen_awaited = self._tell()
                else:
                    with gil:
                        s.seen_awaited = self._tell()
                if not _meet(&s.appender_round, &s.sleeper_round, 2 * number):
                    break

    def sleep(self, int rounds):
        """Run the sleeper's side of so many rounds; return how many wake-ups were lost."""
        cdef Shared *s = self._shared
        cdef int number
        cdef int i
        cdef int before
        cdef int seen
        cdef unsigned int random = 1
        cdef long lost = 0
        with nogil:
            for number in range(1, rounds + 1):
                store32(&s.awaited, 0)
                before = load32(&s.queue_length)
                _meet(&s.sleeper_round, &s.appender_round, 2 * number - 1)
                random = random * 1103515245 + 12345
                for i in range(<int>((random >> 16) & 63)):
                    store32(&s.other, i)
                if FREE_THREADED:
                    seen = self._scan()
                else:
                    with gil:
                        seen = self._scan()
                _meet(&s.sleeper_round, &s.appender_round, 2 * number)
                if s.seen_awaited == 0 and seen == before:
                    lost += 1
        return lost
