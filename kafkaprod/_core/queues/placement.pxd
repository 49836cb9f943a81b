"""Which partitions records without a key may take. See placement.pyx."""

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.topic_queues cimport TopicQueues


cdef class Placement:
    cdef readonly Accumulator accumulator
    cdef readonly bint is_adaptive
    cdef readonly object preferred_nodes    # frozenset of node ids, or None
    cdef readonly frozenset avoided_nodes

    cdef list _candidates(self, TopicQueues topic)
    cdef int _update(self, TopicQueues topic) except -1
