"""The sums of one window, by kind: for the whole producer, a topic, a broker, the callers' threads. See `windows`."""

cimport cython

from kafkaprod.metrics.windows cimport Sample


@cython.final
cdef class ProducerSample(Sample):
    """Sums of the sender thread, over all topics and brokers."""

    NAMES = (
        "requests",
        "batches",
        "records",
        "batch_bytes",  # as sent
        "uncompressed_bytes",
        "batch_bytes_max",
        "record_bytes_max",
        "queue_ms",
        "queue_ms_max",
        "responses",
        "latency_ms",
        "latency_ms_max",
        "retried_records",
        "failed_records",
        "splits",
        "throttle_ms",
        "throttle_ms_max",
        "polls",
        "wait_ns",
        "work_ns",
    )


@cython.final
cdef class TopicSample(Sample):
    """Sums of one topic."""

    NAMES = (
        "records",
        "batch_bytes",
        "uncompressed_bytes",
        "retried_records",
        "failed_records",
    )


cdef class NodeCounters(Sample):
    """Counters of one broker over all its connections. `kafkaprod.net` counts; they never go back."""

    NAMES = (
        "bytes_sent",
        "bytes_received",
        "requests_sent",
        "responses_received",
        "connections_created",
        "connections_closed",
        "authentications_succeeded",
        "authentications_failed",
        "reauthentications_succeeded",
        "reauthentications_failed",
        "reauthentication_ms",  # sum over all of them
    )


@cython.final
cdef class NodeSample(NodeCounters):
    """Sums of one broker, or of all: its connections and its produce requests."""

    NAMES = NodeCounters.NAMES + (
        "request_bytes",
        "request_bytes_max",
        "produce_requests",
        "produce_responses",
        "latency_ms",
        "latency_ms_max",
        "reauthentication_ms_max",
    )


@cython.final
cdef class CallerSample(Sample):
    """Sums of the application's threads: their waits and refused records."""

    NAMES = (
        "memory_wait_ns",
        "refused_records",
    )
