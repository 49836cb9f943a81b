"""When records without a key leave the sticky partition (KIP-794). The caller holds that partition's lock."""

from kafkaprod._core.machine.lock cimport publish32
from kafkaprod._core.queues.batch cimport Batch, Partition, batch_size_bytes
from kafkaprod._core.queues.slabs cimport LARGEST_CLASS
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.records.record_view cimport EVENT_BATCH_FULL, RecordView
from kafkaprod._core.records.record_writer cimport record_size_bound


cdef inline bint has_room(const Batch *b, const RecordView *r) noexcept nogil:
    return batch_size_bytes(b) + record_size_bound(r) <= b.limit


cdef inline bint must_leave(const Partition *p, const RecordView *r, Py_ssize_t batch_size) noexcept nogil:
    """Whether the sticky partition has had its share.

    A batch's worth of bytes and no batch that could take this record too; or two batches' worth in any case.
    """
    if p.sticky_bytes < batch_size:
        return False
    if p.sticky_bytes >= 2 * batch_size or p.open.batch is NULL:
        return True
    return not has_room(p.open.batch, r)


cdef inline void leave_sticky(TopicQueues topic, Partition *p, const RecordView *r, int *events) noexcept nogil:
    """Make another partition the sticky one; `p` is the current one."""
    p.sticky_bytes = 0
    cdef Batch *b = p.open.batch
    if b is not NULL and not b.is_full and not has_room(b, r):
        b.is_full = True            # sendable now, and open for records until the sender takes it
        p.first_class = LARGEST_CLASS
        events[0] |= EVENT_BATCH_FULL
    publish32(&topic.sticky._current, topic.sticky.draw())
