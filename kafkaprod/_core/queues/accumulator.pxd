"""topic -> partition -> queue of batches. See accumulator.pyx."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkaprod._core.queues.batch cimport Batch, Hint, Partition
from kafkaprod._core.queues.buffer_pool cimport BufferPool
from kafkaprod._core.machine.lock cimport mutex_t
from kafkaprod._core.records.murmur2 cimport FastModulo
from kafkaprod._core.queues.partitioner cimport StickyPartitioner
from kafkaprod._core.records.record_arguments cimport RecordArguments
from kafkaprod._core.records.record_view cimport AppendStatus, RecordView


cdef enum:
    ANY_PARTITION = -1          # let the sticky partitioner choose
    FEW_PARTITIONS = 64         # with no more than these everything is in the cache anyway


cdef class TopicQueues:
    """One topic's partitions. The array only grows; its old copies live on, so that loops without the GIL may read on."""

    cdef readonly str name
    cdef readonly bytes name_utf8
    cdef readonly bytes topic_id            # 16 bytes, None if the brokers send none
    cdef readonly tuple leaders             # node id per partition by the latest metadata, -1: none
    cdef readonly int32_t index             # position in Accumulator.topic_list
    cdef readonly int32_t partition_count   # records choose among these
    cdef FastModulo modulo                  # by partition_count; read with the GIL
    cdef int32_t allocated_count            # including those that a re-created topic no longer has
    cdef Partition **partitions
    cdef Hint *hints                     # one per partition; maintained where there are more than FEW_PARTITIONS
    cdef StickyPartitioner sticky
    cdef int sticky_used                    # since the last load update; load32, store32
    cdef int was_used                       # since the last take_used(); load32, store32
    # Capsules of the partitions' memory and of outgrown arrays. Not a list: the garbage collector empties lists.
    cdef tuple _kept

    cdef int grow(self, int32_t count) except -1


cdef class Accumulator:
    cdef readonly BufferPool pool
    cdef readonly dict topics               # name -> TopicQueues
    cdef int64_t topics_generation          # raised with every change of `topics`
    cdef list topic_list
    cdef tuple _all_topics                  # as topic_list, for the garbage collector, which empties lists
    cdef dict _idle_topics                  # name -> TopicQueues that forget_topic() took out of `topics`
    cdef object completion_factory
    cdef object wakeup
    cdef Py_ssize_t batch_size
    cdef Py_ssize_t max_record_bytes
    cdef bint is_closed                     # appends are refused: for good, or until the gate opens
    cdef bint has_ended                     # close() was called
    cdef public list failed_batches         # (topic, partition, error, had a sequence) of each; None: not collected
    cdef public bint ignore_keys            # partitioner_ignore_keys
    cdef bint sums_records                  # records are summed when they are written: nothing compresses them later
    cdef public uint64_t seed               # of sticky draws of topics yet to come; differs from producer to producer
    cdef int awaited_events                 # what the sleeping sender is to be woken for; load32, store32
    cdef int flush_count                    # flushes in progress
    cdef mutex_t _incomplete_lock
    # guarded by _incomplete_lock: all batches that are not DONE, oldest first
    cdef Batch *oldest
    cdef Batch *newest
    cdef int64_t last_serial
    cdef Py_ssize_t incomplete_count
    cdef int telling_count      # batches off the list whose callbacks have not all run yet

    cdef AppendStatus append_locked(self, Partition *p, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    int *events) noexcept nogil
    cdef AppendStatus append_sticky(self, TopicQueues topic, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    Partition **partition, int *events) noexcept nogil
    cdef bint _has_room(self, const Batch *b, const RecordView *r) noexcept nogil
    cdef bint must_leave(self, Partition *p, const RecordView *r) noexcept nogil
    cdef void leave_sticky(self, TopicQueues topic, Partition *p, const RecordView *r, int *events) noexcept nogil
    cdef bint enlist(self, Batch *b, Batch *older) noexcept nogil
    cdef void delist(self, Batch *b) noexcept nogil
    cdef object append_record(self, TopicQueues topic, int32_t partition, const RecordView *r, int64_t now_ms,
                              int64_t ticket)
    cdef object refusal(self)
    cdef int tell_sender(self, int events) except -1
