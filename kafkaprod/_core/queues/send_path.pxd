"""The compiled part of Producer.send. See send_path.pyx."""

from libc.stdint cimport int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator, TopicQueues
from kafkaprod._core.records.record_arguments cimport RecordArguments


cdef class RecordSender:
    cdef readonly Accumulator accumulator
    cdef str _last_name             # of the record before; most often the same object again
    cdef TopicQueues _last_topic    # its topic, as long as the accumulator's topics are those of _last_generation
    cdef int64_t _last_generation
    cdef RecordArguments _spare_arguments
    cdef object _send_general
    cdef public bint must_take_general_path     # serializers, interceptors, a partitioner, no open transaction

    cdef TopicQueues _find_topic(self, str name)
    cdef object _try(self, str topic, object value, object key, object headers, object partition, object timestamp_ms)
