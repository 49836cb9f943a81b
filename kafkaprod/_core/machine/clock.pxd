"""The machine's clocks for the append path, where a Python call would cost as much as the append."""

from libc.stdint cimport int64_t


cdef enum:
    READ_CLOCK = -1     # instead of a monotonic time: read it when it is needed


cdef extern from * nogil:
    """
    #include <time.h>
    #ifndef CLOCK_REALTIME_COARSE
    #define CLOCK_REALTIME_COARSE CLOCK_REALTIME
    #endif
    static inline long long kp_clock_us(clockid_t clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    }
    #define kp_monotonic_us() kp_clock_us(CLOCK_MONOTONIC)
    #define kp_wall_ms() (kp_clock_us(CLOCK_REALTIME_COARSE) / 1000)
    """
    # CLOCK_MONOTONIC, what time.monotonic() reads.
    int64_t monotonic_us "kp_monotonic_us"()
    # Up to one kernel tick (4 ms) behind, for 7 ns instead of 42; good enough for a timestamp in ms.
    int64_t wall_ms "kp_wall_ms"()
