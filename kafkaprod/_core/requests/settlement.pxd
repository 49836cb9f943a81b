"""Ends and returns of batches. See settlement.pyx."""

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Batch, Outcome, Partition
from kafkaprod._core.queues.topic_queues cimport TopicQueues


cdef class BatchRef:
    """A counted reference to a batch, for Python code of the sender."""

    cdef Batch *batch
    cdef Accumulator accumulator

    cdef TopicQueues _topic(self)


cdef BatchRef make_ref(Accumulator accumulator, Batch *b)
cdef bint finish_batch(Accumulator accumulator, Batch *b, Outcome outcome, long long base_offset,
                       long long log_append_time, object error, dict record_errors) except -1
cdef void insert_queued(Partition *p, Batch *b) noexcept nogil
