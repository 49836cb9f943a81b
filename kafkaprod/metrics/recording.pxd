"""What a sender records of each produce request: see recording.pyx."""

from libc.stdint cimport int64_t

from kafkaprod.metrics.histogram cimport LatencyHistogram
from kafkaprod.metrics.windows cimport Sample, SampleRing


cdef class RequestRecorder:
    cdef readonly dict histograms
    cdef readonly dict node_histograms  # of `append`, `send` and `ack`, by node id
    cdef readonly SampleRing _producer
    cdef readonly SampleRing _all_nodes
    cdef readonly dict _nodes           # rings of NodeSample by node id
    cdef readonly dict _topics          # rings of TopicSample by name
    cdef readonly tuple _ring_size
    cdef LatencyHistogram _append
    cdef LatencyHistogram _seal
    cdef LatencyHistogram _ack

    cdef tuple _histograms_of(self, node_id)
    cdef int _begin(self, stages, sample_count, window_ms) except -1
    cdef Sample _sample_of(self, dict rings, key, kind, int64_t now_ms)
