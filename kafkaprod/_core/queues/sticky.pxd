"""When records without a key leave the sticky partition (KIP-794). The caller holds that partition's lock."""

from libc.stdint cimport int32_t

from kafkaprod._core.machine.lock cimport load32, mutex_lock, mutex_unlock, publish32
from kafkaprod._core.queues.batch cimport Batch, Partition, batch_size_bytes
from kafkaprod._core.queues.slabs cimport LARGEST_CLASS
from kafkaprod._core.queues.partitioner cimport StickyPartitioner
from kafkaprod._core.records.record_view cimport EVENT_BATCH_FULL, RecordView
from kafkaprod._core.records.record_writer cimport record_size_bound


cdef inline bint has_room(const Batch *b, const RecordView *r) noexcept nogil:
    return batch_size_bytes(b) + record_size_bound(r) <= b.limit


cdef inline bint must_leave(const Partition *p, const RecordView *r, Py_ssize_t batch_size) noexcept nogil:
    """Whether the sticky partition has had its share.

    That is one batch: it was taken, or it has a batch's worth of bytes and no room for this record too; or two batches'
    worth in any case, where records with a key come between.
    """
    if p.sticky_bytes == 0:
        return False
    if p.open.batch is NULL or p.sticky_bytes >= 2 * batch_size:
        return True
    return p.sticky_bytes >= batch_size and not has_room(p.open.batch, r)


cdef inline void leave_sticky(StickyPartitioner sticky, Partition *p, const RecordView *r, int *events) noexcept nogil:
    """Make another partition the sticky one; `p` is the current one."""
    p.sticky_bytes = 0
    cdef Batch *b = p.open.batch
    if b is not NULL and not b.is_full and not has_room(b, r):
        b.is_full = True            # sendable now, and open for records until the sender takes it
        p.first_class = LARGEST_CLASS
        events[0] |= EVENT_BATCH_FULL
    publish32(&sticky._current, sticky.draw())


cdef inline void leave_partition(StickyPartitioner sticky, Partition *p, int32_t current) noexcept nogil:
    """Draw another sticky partition than `p`, the current one, unless an append was faster. Takes its lock.

    What is queued in it stays there.
    """
    mutex_lock(&p.lock)
    if load32(&sticky._current) == current:
        p.sticky_bytes = 0
        publish32(&sticky._current, sticky.draw())
    mutex_unlock(&p.lock)
