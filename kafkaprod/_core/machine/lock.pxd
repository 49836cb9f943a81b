"""The one kind of lock of the core: four bytes and a futex, held for arithmetic and copying only.

Not pthread_mutex_t: its 40 bytes would push an append's state out of the partition's first cache line; and its unlock, like
every atomic exchange, waits until all that was written before has reached the cache. What an append writes to is in no
cache where there are many partitions, and that wait was a quarter of a send(). Here unlocking is a plain store.
Not cython.pymutex: on CPython 3.11 and 3.12 it falls back to PyThread locks, an uncontended acquire and release of which
took 77 ns (Cython 3.3.1, glibc 2.36), more than a whole append.
A thread that holds one of these never needs the GIL, so waiting for one with the GIL held cannot deadlock.

Theory. The lock is two bytes, `is_held` and `is_awaited`, that the futex system call sees as one word. Locking exchanges
`is_held` for 1. If it was 1 already, the thread spins for some microseconds, as long as a lock is held for a few records, and
then sets `is_awaited` and parks in the kernel, which refuses if the word changed meanwhile. Unlocking stores 0 in `is_held` and
then loads `is_awaited`; if that is set it clears it and wakes all parked threads, which try again. There is no fence between
this store and this load, because the fence would cost what the plain store saves. So unlock can miss a thread that parks at
that moment; each futex wait therefore has a timeout, KP_MOST_SLEEP_NS, after which the thread tries again. A missed wake-up
costs 0.2 ms, and only under contention. Systems without futexes: a thread that found the lock held sleeps KP_NAP_NS between its
tries, and unlock wakes none. Zeroed memory is a free lock; there is nothing to destroy.

Lock order, outermost first: Partition.lock, Backlog.lock, BufferPool._lock.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    ctypedef struct mutex_t "kp_mutex":
        pass
    void mutex_lock "kp_mutex_lock"(mutex_t *mutex)
    void mutex_unlock "kp_mutex_unlock"(mutex_t *mutex)


cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    # Peeks at fields that another thread may be writing under a lock; a stale answer is corrected under the lock.
    int load32 "kp_load"(const int *p)
    void store32 "kp_store"(int *p, int v)
    long long load64 "kp_load"(const long long *p)
    void store64 "kp_store"(long long *p, long long v)
    int32_t load_i32 "kp_load"(const int32_t *p)
    int64_t load_i64 "kp_load"(const int64_t *p)
    void store_i64 "kp_store"(int64_t *p, int64_t v)
    char *load_address "kp_load"(char **p)
    void store_address "kp_store"(char **p, char *v)
    PyObject *load_object "kp_load"(PyObject **p)
    void store_object "kp_store"(PyObject **p, PyObject *v)
    int add32 "kp_add"(int *p, int v)
    int swap32 "kp_swap"(int *p, int v)
    # Flags and pointers that announce other fields: those are written before publish, and read after observe.
    int observe32 "kp_observe"(const int *p)
    void publish32 "kp_publish"(int *p, int v)
    int32_t observe_i32 "kp_observe"(const int32_t *p)
    void publish_i32 "kp_publish"(int32_t *p, int32_t v)
    Py_ssize_t observe_size "kp_observe"(const Py_ssize_t *p)
    void publish_size "kp_publish"(Py_ssize_t *p, Py_ssize_t v)
    PyObject *observe_object "kp_observe"(PyObject **p)
    void publish_object "kp_publish"(PyObject **p, PyObject *v)
    void fence "kp_fence"()     # no load after it comes before a store in front of it
    # Whether the interpreter has no GIL: then objects of several threads need a lock, and counting references is dear.
    const bint FREE_THREADED "KP_FREE_THREADED"


cdef inline void mark32(int *p) noexcept nogil:
    """Store 1, unless it is there: a store would take the cache line from the other threads that mark it."""
    if load32(p) == 0:
        store32(p, 1)
