"""The one kind of lock of the core: a plain mutex, held for arithmetic and copying only.

POSIX mutexes and not cython.pymutex: on CPython 3.11 and 3.12 the latter falls back to PyThread locks, an uncontended
acquire and release of which took 77 ns against 8 ns here (Cython 3.3.1, glibc 2.36), more than a whole append.
A thread that holds one of these never needs the GIL, so waiting for one with the GIL held cannot deadlock.

Lock order, outermost first: Partition.lock, Accumulator._incomplete_lock, BufferPool._lock.
"""

cdef extern from "<pthread.h>" nogil:
    ctypedef struct mutex_t "pthread_mutex_t":
        pass
    int pthread_mutex_init(mutex_t *mutex, const void *attributes)
    int mutex_destroy "pthread_mutex_destroy"(mutex_t *mutex)
    int mutex_lock "pthread_mutex_lock"(mutex_t *mutex)
    int mutex_trylock "pthread_mutex_trylock"(mutex_t *mutex)
    int mutex_unlock "pthread_mutex_unlock"(mutex_t *mutex)


cdef inline int mutex_init(mutex_t *mutex) noexcept nogil:
    return pthread_mutex_init(mutex, NULL)


cdef extern from * nogil:
    """
    #define kp_load32(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define kp_store32(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #define kp_load64(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define kp_store64(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #ifdef Py_GIL_DISABLED
    #define KP_FREE_THREADED 1
    #else
    #define KP_FREE_THREADED 0
    #endif
    #define kp_add32(p, v) __atomic_add_fetch((p), (v), __ATOMIC_ACQ_REL)
    """
    # Peeks at fields that another thread may be writing under a lock; a stale answer is corrected under the lock.
    int load32 "kp_load32"(const int *p)
    void store32 "kp_store32"(int *p, int v)
    long long load64 "kp_load64"(const long long *p)
    void store64 "kp_store64"(long long *p, long long v)
    int add32 "kp_add32"(int *p, int v)
    # Where the GIL exists, holding it keeps the sender from freeing a batch; without it a reference must.
    const bint FREE_THREADED "KP_FREE_THREADED"
