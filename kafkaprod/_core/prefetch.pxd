"""Asking for memory before it is needed. A hint: a bad address does no harm."""

cdef extern from * nogil:
    """
    #define kp_prefetch_read(p) __builtin_prefetch((p), 0)
    #define kp_prefetch_write(p) __builtin_prefetch((p), 1)
    """
    void prefetch_read "kp_prefetch_read"(const void *p)
    void prefetch_write "kp_prefetch_write"(const void *p)
