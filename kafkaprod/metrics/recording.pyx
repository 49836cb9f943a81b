"""The part of `ProducerMetrics` that each produce request passes. Compiled for the reason that `windows` gives."""

from libc.stdint cimport int64_t

from kafkaprod.metrics.histogram cimport LatencyHistogram
from kafkaprod.metrics.sums cimport NodeSample, ProducerSample, TopicSample
from kafkaprod.metrics.windows cimport Sample, SampleRing


cdef class RequestRecorder:
    """Base of `ProducerMetrics`.

    Args:
        stages: The names of the histograms; `append`, `seal` and `ack` are among them.
        sample_count: Windows that rates, averages and maxima cover.
        window_ms: Length of one.

    Attributes:
        histograms: How long batches took in each stage.
        node_histograms: The same for each broker, by node id: a tuple of `append`, `send` and `ack`.
    """

    def __cinit__(self, *_, **__):
        self._begin(("append", "seal", "ack"), 2, 30_000)       # whole even where __init__ is not called

    def __init__(self, stages, sample_count, window_ms):
        self._begin(stages, sample_count, window_ms)

    cdef int _begin(self, stages, sample_count, window_ms) except -1:
        self._ring_size = (sample_count, window_ms)
        self._producer = SampleRing(ProducerSample, sample_count, window_ms)
        self._all_nodes = SampleRing(NodeSample, sample_count, window_ms)
        self._nodes = {}
        self._topics = {}
        self.histograms = {stage: LatencyHistogram() for stage in stages}
        self.node_histograms = {}
        self._append = self.histograms["append"]
        self._seal = self.histograms["seal"]
        self._ack = self.histograms["ack"]
        return 0

    def on_request(self, node_id, sums not None, int64_t size_bytes, int64_t now_ms, int64_t seal_us=0):
        """Count a produce request that is sent.

        Args:
            node_id: The broker.
            sums: Over the batches of the request.
            size_bytes: The size of the request, batches compressed.
            now_ms: When they were drained.
            seal_us: How long that took, compression and CRC included.
        """
        cdef ProducerSample sample = self._producer.at(now_ms)
        cdef TopicSample topic
        cdef NodeSample node
        cdef int64_t batch_count
        cdef int64_t size
        cdef int64_t sent
        cdef int64_t largest_sent
        cdef double largest_mean
        cdef int64_t queue_ms
        cdef int64_t count
        batch_count, size, sent, largest_sent, largest_mean, topics, queue_times = sums
        sample.requests += 1
        sample.batches += batch_count
        sample.batch_bytes += sent
        sample.uncompressed_bytes += size
        sample.batch_bytes_max = max(sample.batch_bytes_max, largest_sent)
        sample.record_bytes_max = max(sample.record_bytes_max, largest_mean)
        self._seal.add(seal_us, batch_count)
        cdef LatencyHistogram node_append = self._histograms_of(node_id)[0]
        for queue_ms, count in queue_times:
            self._append.add(queue_ms * 1000, count)
            node_append.add(queue_ms * 1000, count)
            sample.queue_ms += queue_ms * count
            sample.queue_ms_max = max(sample.queue_ms_max, queue_ms)
        for name, count, size, sent in topics:
            topic = self._sample_of(self._topics, name, TopicSample, now_ms)
            topic.records += count
            topic.batch_bytes += sent
            topic.uncompressed_bytes += size
            sample.records += count
        for node in (self._sample_of(self._nodes, node_id, NodeSample, now_ms), self._all_nodes.at(now_ms)):
            node.produce_requests += 1
            node.request_bytes += size_bytes
            node.request_bytes_max = max(node.request_bytes_max, size_bytes)

    def on_response(self, node_id, int64_t latency_ms, int64_t now_ms):
        """Count an answer to a produce request, `latency_ms` after it was sent."""
        cdef ProducerSample sample = self._producer.at(now_ms)
        cdef NodeSample node = self._sample_of(self._nodes, node_id, NodeSample, now_ms)
        sample.responses += 1
        sample.latency_ms += latency_ms
        sample.latency_ms_max = max(sample.latency_ms_max, latency_ms)
        node.produce_responses += 1
        node.latency_ms += latency_ms
        node.latency_ms_max = max(node.latency_ms_max, latency_ms)
        self._ack.add(latency_ms * 1000, 1)
        cdef LatencyHistogram node_ack = self._histograms_of(node_id)[2]
        node_ack.add(latency_ms * 1000, 1)

    def on_stage(self, stage, int64_t latency_us, int64_t batch_count=1):
        """Record how long batches took in one stage; the other methods record `append`, `seal`, `send` and `ack`."""
        cdef LatencyHistogram histogram = self.histograms[stage]
        histogram.add(latency_us, batch_count)

    def on_written(self, node_id, int64_t write_ms, int64_t batch_count):
        """Count a produce request whose last byte the socket took `write_ms` after it was sent."""
        cdef LatencyHistogram node_send = self._histograms_of(node_id)[1]
        self.on_stage("send", write_ms * 1000, batch_count)
        node_send.add(write_ms * 1000, batch_count)

    def _topic(self, topic, int64_t now_ms):
        return self._sample_of(self._topics, topic, TopicSample, now_ms)

    def _node(self, node_id, int64_t now_ms):
        return self._sample_of(self._nodes, node_id, NodeSample, now_ms)

    cdef tuple _histograms_of(self, node_id):
        """Return the histograms of a broker; one that is new gets some."""
        found = self.node_histograms.get(node_id)
        if found is None:
            found = self.node_histograms[node_id] = (LatencyHistogram(), LatencyHistogram(), LatencyHistogram())
        return found

    cdef Sample _sample_of(self, dict rings, key, kind, int64_t now_ms):
        """Return the sample to record into now; a topic or node that is new gets a ring."""
        cdef SampleRing ring
        if key not in rings:
            rings[key] = SampleRing(kind, *self._ring_size)
        ring = rings[key]
        return ring.at(now_ms)
