"""The user's code on the way of one record. See record_hooks.pyx."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.queues.completion cimport DeliveryFuture


cdef enum SerializerForm:
    OF_DATA                     # function(data)
    OF_TOPIC                    # function(topic, data)
    OF_HEADERS                  # function(topic, headers, data)
    OF_CONTEXT                  # function(data, context)


cdef class SerializerCall:
    cdef readonly str field
    cdef readonly bint takes_headers
    cdef object _function
    cdef SerializerForm _form
    cdef str _name
    cdef type _context_type

    @cython.final
    cdef object run(self, str topic, object headers, object data)

    @cython.final
    cdef object call_with_more(self, str topic, object headers, object data)

    @cython.final
    cdef int wrap_error(self, str topic, object data) except -1

    @cython.final
    cdef object failed(self, str topic, object data, object error)

    @cython.final
    cdef object checked(self, str topic, object serialized)


cdef class InterceptorCalls:
    cdef readonly int64_t failure_count
    cdef readonly bint sees_records     # not only outcomes
    cdef list _on_send
    cdef list _on_acknowledgement
    cdef type _record_type
    cdef object _failures
    cdef object _acknowledge_callback

    @cython.final
    cdef object intercept(self, str topic, object value, object key, object headers, object partition, object timestamp_ms)

    @cython.final
    cdef object pass_on(self, object record)

    @cython.final
    cdef int acknowledge(self, object metadata, object error) except -1

    @cython.final
    cdef int watch(self, DeliveryFuture future) except -1

    @cython.final
    cdef int count_failure(self, object interceptor, str method, object error) except -1


cdef class PartitionerCall:
    cdef object _partitioner
    cdef str _name
    cdef dict _available            # topic -> (leaders, what follows of them)

    @cython.final
    cdef int32_t pick(self, str topic, object key, object value, object leaders) except -1

    @cython.final
    cdef int32_t checked(
        self, object partition, str topic, object key, object value, Py_ssize_t count, object available
    ) except -1

    @cython.final
    cdef tuple known_available(self, str topic, object leaders)


cdef class RecordHooks:
    cdef readonly SerializerCall key_serializer
    cdef readonly SerializerCall value_serializer
    cdef readonly PartitionerCall partitioner
    cdef readonly InterceptorCalls chain
    cdef readonly bint takes_headers
    cdef readonly bint only_serializes
    cdef readonly bint has_any


cdef class HookedRecord:
    cdef readonly object record        # a ProducerRecord
    cdef readonly bint is_prepared
    cdef Accumulator _accumulator
    cdef TopicQueues _queues
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef int32_t _partition
    cdef int64_t _timestamp


cdef object own_headers(object headers)
