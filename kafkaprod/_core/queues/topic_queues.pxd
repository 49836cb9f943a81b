"""The partitions of one topic. See topic_queues.pyx."""

from libc.stdint cimport int32_t

from kafkaprod._core.machine.lock cimport observe_i32
from kafkaprod._core.queues.batch cimport Batching, Hint, Partition
from kafkaprod._core.queues.buffer_pool cimport BufferPool
from kafkaprod._core.queues.partitioner cimport StickyPartitioner
from kafkaprod._core.records.murmur2 cimport FastModulo


cdef enum:
    FEW_PARTITIONS = 64         # with no more than these everything is in the cache anyway


cdef class TopicQueues:
    """One topic's partitions. The array only grows; its old copies live on, so that loops without the GIL may read on."""

    cdef readonly str name
    cdef readonly bytes name_utf8
    cdef readonly bytes topic_id            # 16 bytes, None if the brokers send none; for the sender thread only
    cdef tuple _leaders                     # with a critical section on this object
    cdef readonly int32_t index             # position in Accumulator.topic_list
    cdef int32_t _partition_count           # records choose among these; published behind the arrays
    cdef Batching batching                  # set before the first partition; they point to it
    cdef FastModulo modulo                  # by partition_count; read with the GIL
    cdef int32_t allocated_count            # including those that a re-created topic no longer has
    cdef Partition **partitions
    cdef Hint *hints                     # one per partition; maintained where there are more than FEW_PARTITIONS
    cdef StickyPartitioner sticky
    cdef int sticky_used                    # since the last load update; load32, store32
    cdef int was_used                       # since the last take_used(); load32, store32
    # Capsules of the partitions' memory and of outgrown arrays. Not a list: the garbage collector empties lists.
    cdef tuple _kept

    cdef int update(self, object leaders, object epochs, bytes topic_id, object seed, BufferPool pool) except -1
    cdef tuple leaders_now(self)
    cdef bint take_used(self) noexcept
    cdef int _grow(self, int32_t count, BufferPool pool) except -1
    cdef int _update_sticky(self, int32_t count, list led, object seed) except -1


cdef inline int32_t partition_count(TopicQueues topic) noexcept nogil:
    """How many partitions records choose among. Taken before `partitions` or `hints`, it is no more than those have."""
    return observe_i32(&topic._partition_count)


cdef TopicQueues make_topic_queues(str name, int32_t index)
