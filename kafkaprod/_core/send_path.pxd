"""The compiled part of Producer.send. See send_path.pyx."""

from kafkaprod._core.accumulator cimport Accumulator


cdef class RecordSender:
    cdef readonly Accumulator accumulator
    cdef dict _topics
    cdef public bint has_hooks      # serializers, interceptors or a partitioner: every record takes the general path

    cdef object _try(self, str topic, object value, object key, object headers, object partition, object timestamp_ms)
