"""topic -> partition -> queue of batches. See accumulator.pyx."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkaprod._core.queues.backlog cimport Backlog
from kafkaprod._core.queues.batch cimport Batch, Batching, Partition
from kafkaprod._core.queues.buffer_pool cimport BufferPool
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.records.record_view cimport AppendStatus, RecordView


cdef enum:
    ANY_PARTITION = -1          # let the sticky partitioner choose


cdef class Accumulator:
    cdef readonly BufferPool pool
    cdef readonly dict topics               # name -> TopicQueues
    cdef readonly dict held_topics          # name -> what waits to be appended first, empty for most of the time
    cdef int64_t topics_generation          # raised with every change of `topics`, and when a topic is held
    cdef list topic_list
    cdef tuple _all_topics                  # as topic_list, for the garbage collector, which empties lists
    cdef dict _idle_topics                  # name -> TopicQueues that forget_topic() took out of `topics`
    cdef object completion_factory
    cdef object wakeup
    cdef Batching defaults                  # of topics that `topic_batching` does not name
    # topic -> (batch_size, max_batch_size, linger_ms, index of the codec, whether that compresses), or None
    cdef public object topic_batching
    cdef Py_ssize_t max_record_bytes
    cdef public list failed_batches         # (topic, partition, error, had a sequence) of each; None: not collected
    cdef bint has_progress                  # a stored batch has had its outcome since take_progress()
    cdef public bint ignore_keys            # partitioner_ignore_keys
    cdef public uint64_t seed               # of sticky draws of topics yet to come; differs from producer to producer
    cdef bint is_abandoned                  # in a forked child: locks may be held for ever
    cdef int64_t turn_us                    # of the sender's last turn: see sticky.pxd; load_i64, store_i64
    cdef int awaited_events                 # what wakes the sleeping sender; load32, store32
    cdef Backlog backlog                    # all batches that are not DONE, and the gate to them

    cdef int set_sending(self, int64_t linger_us, bint sums_records) except -1
    cdef AppendStatus append_locked(self, Partition *p, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    int *events) noexcept nogil
    cdef AppendStatus append_sticky(self, TopicQueues topic, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    Partition **partition, int *events) noexcept nogil
    cdef object append_record(self, TopicQueues topic, int32_t partition, const RecordView *r, int64_t now_ms,
                              int64_t ticket)
    cdef object refusal(self)
    cdef int tell_sender(self, int events) except -1
