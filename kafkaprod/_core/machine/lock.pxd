"""The one kind of lock of the core: four bytes and a futex, held for arithmetic and copying only.

Not pthread_mutex_t: its 40 bytes would push an append's state out of the partition's first cache line; and its unlock, like
every atomic exchange, waits until all that was written before has reached the cache. What an append writes to is in no
cache where there are many partitions, and that wait was a quarter of a send(). Here unlocking is a plain store.
Not cython.pymutex: on CPython 3.11 and 3.12 it falls back to PyThread locks, an uncontended acquire and release of which
took 77 ns (Cython 3.3.1, glibc 2.36), more than a whole append.
A thread that holds one of these never needs the GIL, so waiting for one with the GIL held cannot deadlock.

Who has to wait says so in `is_awaited` and sleeps; who unlocks looks there afterwards, and wakes all. As nothing orders its
look behind its store, it may overlook somebody who lies down in that very moment. That is why nobody sleeps for longer than
MOST_SLEEP_NS before he looks again himself. Zeroed memory is a free lock; there is nothing to destroy.

Lock order, outermost first: Partition.lock, Accumulator._incomplete_lock, BufferPool._lock.
"""

from libc.stdint cimport int32_t, int64_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__x86_64__) || defined(__i386__)
    #define KP_PAUSE() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define KP_PAUSE() __asm__ volatile("yield")
    #else
    #define KP_PAUSE() ((void)0)
    #endif
    /* linux/futex.h is not there where only a C library's headers are, as on Alpine; these are part of the kernel's ABI. */
    #define KP_FUTEX_WAIT_PRIVATE 128
    #define KP_FUTEX_WAKE_PRIVATE 129
    #define KP_SPINS 40                 /* some microseconds: as long as a lock is held for a few records */
    #define KP_MOST_SLEEP_NS 200000
    typedef union {
        uint32_t word;                  /* what the kernel compares */
        struct { uint8_t is_held, is_awaited; } is;
    } kp_mutex;

    static inline int kp_mutex_try(kp_mutex *m) {
        return __atomic_exchange_n(&m->is.is_held, 1, __ATOMIC_ACQUIRE) == 0;
    }
    static __attribute__((noinline, cold, unused)) void kp_mutex_wait(kp_mutex *m) {
        const struct timespec most = {0, KP_MOST_SLEEP_NS};
        kp_mutex asleep = {0};
        asleep.is.is_held = asleep.is.is_awaited = 1;
        for (int i = 0; i < KP_SPINS; i++) {
            KP_PAUSE();
            if (!__atomic_load_n(&m->is.is_held, __ATOMIC_RELAXED) && kp_mutex_try(m)) return;
        }
        for (;;) {
            __atomic_store_n(&m->is.is_awaited, 1, __ATOMIC_SEQ_CST);
            if (kp_mutex_try(m)) return;
            syscall(SYS_futex, &m->word, KP_FUTEX_WAIT_PRIVATE, asleep.word, &most, (void *)0, 0);
        }
    }
    static __attribute__((noinline, cold, unused)) void kp_mutex_wake(kp_mutex *m) {
        __atomic_store_n(&m->is.is_awaited, 0, __ATOMIC_RELAXED);
        syscall(SYS_futex, &m->word, KP_FUTEX_WAKE_PRIVATE, INT32_MAX, (void *)0, (void *)0, 0);
    }
    static inline void kp_mutex_lock(kp_mutex *m) {
        if (__builtin_expect(!kp_mutex_try(m), 0)) kp_mutex_wait(m);
    }
    static inline void kp_mutex_unlock(kp_mutex *m) {
        __atomic_store_n(&m->is.is_held, 0, __ATOMIC_RELEASE);
        if (__builtin_expect(__atomic_load_n(&m->is.is_awaited, __ATOMIC_RELAXED), 0)) kp_mutex_wake(m);
    }
    """
    ctypedef struct mutex_t "kp_mutex":
        pass
    void mutex_lock "kp_mutex_lock"(mutex_t *mutex)
    void mutex_unlock "kp_mutex_unlock"(mutex_t *mutex)


cdef extern from * nogil:
    """
    #define kp_load32(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define kp_store32(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #define kp_load64(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define kp_store64(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
    #define kp_publish64(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define kp_observe64(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
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
    int32_t load_i32 "kp_load32"(const int32_t *p)
    int64_t load_i64 "kp_load64"(const int64_t *p)
    void store64 "kp_store64"(long long *p, long long v)
    # A pointer for others to follow without the lock: what was written before publish64 is there after observe64.
    void publish64 "kp_publish64"(long long *p, long long v)
    long long observe64 "kp_observe64"(const long long *p)
    int add32 "kp_add32"(int *p, int v)
    # Where the GIL exists, holding it keeps the sender from freeing a batch; without it a reference must.
    const bint FREE_THREADED "KP_FREE_THREADED"
