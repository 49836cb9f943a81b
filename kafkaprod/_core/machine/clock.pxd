"""The machine's clocks for the append path, where a Python call would cost as much as the append."""

from libc.stdint cimport int64_t


cdef enum:
    READ_CLOCK = -1     # instead of a monotonic time: read it when it is needed


cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    # What time.monotonic() reads.
    int64_t monotonic_us "kp_monotonic_us"()
    int64_t monotonic_ns "kp_monotonic_ns"()
    # Up to one kernel tick (4 ms) behind, for 7 ns instead of 42; good enough for a timestamp in ms.
    int64_t wall_ms "kp_wall_ms"()
