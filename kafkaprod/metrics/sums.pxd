"""The sums of one window: see sums.pyx."""

from libc.stdint cimport int64_t

from kafkaprod.metrics.windows cimport Sample


cdef class ProducerSample(Sample):
    cdef public int64_t requests
    cdef public int64_t batches
    cdef public int64_t records
    cdef public int64_t batch_bytes
    cdef public int64_t uncompressed_bytes
    cdef public int64_t batch_bytes_max
    cdef public double record_bytes_max
    cdef public int64_t queue_ms
    cdef public int64_t queue_ms_max
    cdef public int64_t responses
    cdef public int64_t latency_ms
    cdef public int64_t latency_ms_max
    cdef public int64_t retried_records
    cdef public int64_t failed_records
    cdef public int64_t splits
    cdef public int64_t throttle_ms
    cdef public int64_t throttle_ms_max
    cdef public int64_t polls
    cdef public int64_t wait_ns
    cdef public int64_t work_ns


cdef class TopicSample(Sample):
    cdef public int64_t records
    cdef public int64_t batch_bytes
    cdef public int64_t uncompressed_bytes
    cdef public int64_t retried_records
    cdef public int64_t failed_records


cdef class NodeCounters(Sample):
    cdef public int64_t bytes_sent
    cdef public int64_t bytes_received
    cdef public int64_t requests_sent
    cdef public int64_t responses_received
    cdef public int64_t connections_created
    cdef public int64_t connections_closed
    cdef public int64_t authentications_succeeded
    cdef public int64_t authentications_failed
    cdef public int64_t reauthentications_succeeded
    cdef public int64_t reauthentications_failed
    cdef public int64_t reauthentication_ms


cdef class NodeSample(NodeCounters):
    cdef public int64_t request_bytes
    cdef public int64_t request_bytes_max
    cdef public int64_t produce_requests
    cdef public int64_t produce_responses
    cdef public int64_t latency_ms
    cdef public int64_t latency_ms_max
    cdef public int64_t reauthentication_ms_max


cdef class CallerSample(Sample):
    cdef public int64_t memory_wait_ns
    cdef public int64_t refused_records
