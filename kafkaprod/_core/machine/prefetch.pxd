"""Asking for memory before it is needed. A hint: a bad address does no harm."""

cdef extern from * nogil:
    """
    /* The empty statement keeps the compiler from taking a function that only fetches for one without any effect, whose
       calls it drops. */
    #define KP_KEEP(p) __asm__ volatile("" : : "r"(p))
    static inline void kp_prefetch_read(const void *p) { __builtin_prefetch(p, 0); KP_KEEP(p); }
    static inline void kp_prefetch_write(const void *p) { __builtin_prefetch(p, 1); KP_KEEP(p); }
    """
    void prefetch_read "kp_prefetch_read"(const void *p)
    void prefetch_write "kp_prefetch_write"(const void *p)
