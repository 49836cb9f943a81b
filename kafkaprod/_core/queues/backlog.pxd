"""The batches that have no outcome yet, oldest first, and the gate that new ones pass.

A gate and its list share a lock: once the gate is shut, whoever walks the list sees every batch that got in.
"""

from libc.stdint cimport int64_t

from kafkaprod._core.machine.lock cimport mutex_lock, mutex_t, mutex_unlock, publish_size
from kafkaprod._core.queues.batch cimport Batch, batch_retain, store_batch


cdef struct Backlog:
    mutex_t lock
    # guarded by lock; the gate and the counts are also read without it
    Batch *oldest
    Batch *newest
    int64_t last_serial
    Py_ssize_t count
    int flush_count             # flushes in progress
    bint is_closed              # new batches are refused: for good, or until the gate opens
    bint has_ended              # for good
    # written with add32: batches off the list whose callbacks have not all run yet
    int publishing_count


cdef inline void backlog_insert(Backlog *backlog, Batch *b, Batch *older) noexcept nogil:
    """Put the batch, with a reference, behind `older`, as whose part it counts. The lock is taken here."""
    mutex_lock(&backlog.lock)
    b.serial = older.serial
    backlog_link(backlog, b, older)
    mutex_unlock(&backlog.lock)


cdef inline bint backlog_add(Backlog *backlog, Batch *b) noexcept nogil:
    """Put a new batch last, with a reference; False, with nothing done, while the gate is shut."""
    mutex_lock(&backlog.lock)
    cdef bint is_open = not backlog.is_closed
    if is_open:
        backlog.last_serial += 1
        b.serial = backlog.last_serial
        backlog_link(backlog, b, backlog.newest)
    mutex_unlock(&backlog.lock)
    return is_open


cdef inline void backlog_link(Backlog *backlog, Batch *b, Batch *older) noexcept nogil:
    """Link the batch behind `older`, or first if that is NULL. The caller holds the lock."""
    batch_retain(b)
    b.older = older
    b.newer = backlog.oldest if older is NULL else older.newer
    if older is NULL:
        backlog.oldest = b
    else:
        store_batch(&older.newer, b)     # the sender prefetches its neighbours' memory without the lock
    if b.newer is NULL:
        backlog.newest = b
    else:
        b.newer.older = b
    backlog.count += 1


cdef inline void backlog_remove(Backlog *backlog, Batch *b) noexcept nogil:
    """Take the batch off the list; the caller gets the list's reference."""
    mutex_lock(&backlog.lock)
    if b.older is NULL:
        backlog.oldest = b.newer
    else:
        b.older.newer = b.newer
    if b.newer is NULL:
        backlog.newest = b.older
    else:
        b.newer.older = b.older
    b.older = NULL
    b.newer = NULL
    publish_size(&backlog.count, backlog.count - 1)     # after what the remover counted elsewhere
    mutex_unlock(&backlog.lock)


cdef inline int64_t backlog_oldest_serial(Backlog *backlog) noexcept nogil:
    """Return the serial of the oldest batch, 0 if there is none."""
    mutex_lock(&backlog.lock)
    cdef int64_t serial = 0 if backlog.oldest is NULL else backlog.oldest.serial
    mutex_unlock(&backlog.lock)
    return serial


cdef inline int64_t backlog_begin_flush(Backlog *backlog) noexcept nogil:
    """Count a flush, and return the serial of the newest batch ever added."""
    mutex_lock(&backlog.lock)
    cdef int64_t mark = backlog.last_serial
    backlog.flush_count += 1
    mutex_unlock(&backlog.lock)
    return mark


cdef inline void backlog_end_flush(Backlog *backlog) noexcept nogil:
    mutex_lock(&backlog.lock)
    backlog.flush_count -= 1
    mutex_unlock(&backlog.lock)


cdef inline void backlog_set_gate(Backlog *backlog, bint is_open) noexcept nogil:
    """Open or shut the gate; after backlog_end() it stays shut."""
    mutex_lock(&backlog.lock)
    backlog.is_closed = backlog.has_ended or not is_open
    mutex_unlock(&backlog.lock)


cdef inline void backlog_end(Backlog *backlog) noexcept nogil:
    """Shut the gate for good."""
    mutex_lock(&backlog.lock)
    backlog.is_closed = True
    backlog.has_ended = True
    mutex_unlock(&backlog.lock)
