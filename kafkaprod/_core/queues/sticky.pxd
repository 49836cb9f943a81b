"""When records without a key leave the sticky partition (KIP-794). The caller holds that partition's lock.

A visit ends

- when the batch was taken,
- after a batch's worth of bytes,
- when the partition falls behind: its node is blocked (it has all that it may have in flight, or is not connected), or
  its first batch was due at the sender's last turn and is still there (it backs off, or batches before it must be
  answered first).

So a visit to a slow broker lasts no longer than one to a fast broker. A partition that is behind is not drawn either,
unless MOST_DRAWS draws in a row find no other. Where all nodes are blocked, as in a program that is faster than the
cluster, none is better than another: then only batches end visits.
"""

from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.machine.lock cimport load32, load_i64, mutex_lock, mutex_unlock, publish32, store_i64
from kafkaprod._core.queues.batch cimport Batch, Partition, batch_size_bytes
from kafkaprod._core.queues.slabs cimport LARGEST_CLASS
from kafkaprod._core.queues.partitioner cimport StickyPartitioner
from kafkaprod._core.records.record_view cimport EVENT_BATCH_FULL, RecordView
from kafkaprod._core.records.record_writer cimport record_size_bound


cdef inline bint has_room(const Batch *b, const RecordView *r) noexcept nogil:
    return batch_size_bytes(b) + record_size_bound(r) <= b.limit


cdef enum:
    MOST_DRAWS = 4              # of another partition where a node may hold no more, or is behind
    ALL_ARE_BLOCKED = -1           # instead of the time of a turn


cdef inline bint is_behind(Partition *p, int64_t turn_us) noexcept nogil:
    """Whether what was due for the partition at the sender's turn of that time could not be sent, as far as is known."""
    if turn_us == ALL_ARE_BLOCKED:
        return False
    return load32(&p.account.is_blocked) != 0 or (p.head is not NULL and p.head.linger_end_us <= turn_us)


cdef inline bint has_had_share(const Partition *p, const RecordView *r, Py_ssize_t batch_size) noexcept nogil:
    """Whether the sticky partition has had a batch's share.

    That is one batch: it was taken, or it has a batch's worth of bytes and no room for this record too; or two batches'
    worth in any case, where records with a key come between.
    """
    if p.sticky_bytes == 0:
        return False
    if p.open.batch is NULL or p.sticky_bytes >= 2 * batch_size:
        return True
    return p.sticky_bytes >= batch_size and not has_room(p.open.batch, r)


cdef inline bint must_leave(StickyPartitioner sticky, Partition *p, const RecordView *r, Py_ssize_t batch_size,
                            int64_t turn_us, int *draws) noexcept nogil:
    """Whether this record goes to another partition than `p`, the current one.

    Whether that is behind is looked at when a visit begins, and then once in each turn of the sender.

    Args:
        turn_us: When the sender's last turn began, or ALL_ARE_BLOCKED.
        draws: How often a partition that is behind may still be left before a visit; counted down.
    """
    if p.sticky_bytes == 0:
        store_i64(&sticky._looked_us, turn_us)
        if draws[0] == 0 or not is_behind(p, turn_us):
            return False
        draws[0] -= 1
        return True
    if load_i64(&sticky._looked_us) != turn_us:
        store_i64(&sticky._looked_us, turn_us)
        if is_behind(p, turn_us):
            return True
    return has_had_share(p, r, batch_size)


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
