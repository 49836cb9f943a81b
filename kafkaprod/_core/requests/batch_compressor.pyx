"""Compresses the batches of a request, and learns how much smaller that makes them. Sender thread only."""

cimport cython
from libc.stdlib cimport free, malloc

from kafkaprod._core.queues.batch cimport (
    DONE,
    FAILED,
    batch_records,
    batch_release,
    batch_release_memory,
    batch_sealed_size,
    batch_set_compressed,
)
from kafkaprod._core.requests.settlement cimport finish_batch


@cython.final
cdef class BatchCompressor:
    """The codecs of a producer: each batch has that of its topic.

    Args:
        codecs: Each a compression.Codec, or None.
        workers: An object with Executor.map, to compress several batches at a time; None: one after the other.
    """

    def __cinit__(self, Accumulator accumulator not None, codecs not None, workers=None):
        cdef Py_ssize_t i
        self.accumulator = accumulator
        self.codecs = tuple(codecs)
        self.workers = workers
        self.ratios = <double *>malloc(<size_t>len(self.codecs) * sizeof(double))
        if self.ratios is NULL:
            raise MemoryError
        for i in range(len(self.codecs)):
            self.ratios[i] = 1.0

    def __dealloc__(self):
        free(self.ratios)

    cdef int run(self, ProduceRequest request) except -1:
        """Compress the batches that are not compressed yet, and seal all; those that the codec refuses fail and leave."""
        cdef Py_ssize_t i
        cdef Batch *b
        cdef list waiting = []
        cdef list pairs = []
        for i in range(request.batch_count):
            b = request.entries[i].batch
            codec = self.codecs[b.partition.codec]
            if b.compressed is NULL and codec is not None:
                waiting.append(i)
                pairs.append((codec, batch_records(b)))
        for position, blob in zip(waiting, self._compress_all(pairs)):
            i = position
            b = request.entries[i].batch
            if isinstance(blob, Exception):
                # The codec refused, or memory ran out: these records fail, the others go.
                finish_batch(self.accumulator, b, FAILED, -1, -1, blob, None)
            else:
                batch_set_compressed(b, blob, self.codecs[b.partition.codec].codec_id)
                self._learn_ratio(b)
        self._drop_failed(request)
        for i in range(request.batch_count):
            request.seal(i)
        return 0

    cdef list _compress_all(self, list pairs):
        """Return a blob, or the exception instead of it, for each codec and section."""
        if self.workers is not None and len(pairs) > 1:
            try:
                return list(self.workers.map(_compressed, pairs))
            except RuntimeError:
                self.workers = None     # the interpreter ends: its executors take no more work
        return [_compressed(pair) for pair in pairs]

    cdef int _drop_failed(self, ProduceRequest request) except -1:
        """Drop what failed in compression."""
        cdef Py_ssize_t i
        cdef Py_ssize_t kept = 0
        cdef Batch *b
        for i in range(request.batch_count):
            b = request.entries[i].batch
            if b.state != DONE:
                request.entries[kept] = request.entries[i]
                kept += 1
                continue
            request.record_count -= b.record_count
            b.request_count -= 1
            batch_release_memory(b, self.accumulator.pool)
            batch_release(b, self.accumulator.pool)
        request.batch_count = kept
        return 0

    cdef void _learn_ratio(self, const Batch *b) noexcept:
        """Kafka's estimator: rises quickly, falls slowly, so that a request is rarely larger than estimated."""
        cdef double *ratio = self.ratios + b.partition.codec
        cdef double observed
        if b.compressed is NULL:
            return
        observed = <double>(batch_sealed_size(b) - BATCH_HEADER_BYTES) / <double>(batch_size_bytes(b) - BATCH_HEADER_BYTES)
        if observed > ratio[0]:
            ratio[0] = max(ratio[0] + 0.05, observed)
        else:
            ratio[0] = max(ratio[0] - 0.005, observed)


def _compressed(tuple pair):
    """Return a section compressed by its codec, or the exception that raised."""
    codec, section = pair
    try:
        return codec.compress(section)
    except Exception as error:
        return error
