"""The compiled part of Producer.send. See send_path.pyx."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.queues.record_hooks cimport RecordHooks
from kafkaprod._core.records.record_arguments cimport RecordArguments


cdef class RecordSender:
    cdef readonly Accumulator accumulator
    cdef str _last_name             # of the record before; most often the same object again
    cdef TopicQueues _last_topic    # its topic, as long as the accumulator's topics are those of _last_generation
    cdef int64_t _last_generation
    cdef RecordArguments _spare_arguments
    cdef object _send_general
    cdef object _send_hooked
    cdef RecordHooks _hooks         # None: the user gave none

    cdef TopicQueues _find_topic(self, str name)
    cdef object _try(self, str topic, object value, object key, object headers, object partition, object timestamp_ms)

    @cython.final
    cdef bint _is_last(self, str topic) noexcept

    @cython.final
    cdef object _append_any(self, TopicQueues queues, int32_t partition, object value, object key, object headers,
                            int64_t timestamp)

    @cython.final
    cdef object _try_serialized(self, str topic, object value, object key, object headers, object partition,
                                object timestamp_ms)

    @cython.final
    cdef object _try_hooked(self, str topic, object value, object key, object headers, object partition,
                            object timestamp_ms)

    @cython.final
    cdef object _try_prepared(self, object record, str topic, object value, object key, object headers, object partition,
                              object timestamp_ms)
