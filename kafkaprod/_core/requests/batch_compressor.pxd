"""Compresses the batches of a request. See batch_compressor.pyx."""

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Batch, batch_size_bytes
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES
from kafkaprod._core.requests.produce_request cimport ProduceRequest


cdef class BatchCompressor:
    cdef Accumulator accumulator
    cdef tuple codecs                       # by Partition.codec; None: as they are
    cdef object workers
    cdef double *ratios                     # compressed / raw size by codec, estimated over all its topics

    cdef int run(self, ProduceRequest request) except -1
    cdef list _compress_all(self, list pairs)
    cdef int _drop_failed(self, ProduceRequest request) except -1
    cdef void _learn_ratio(self, const Batch *b) noexcept


cdef inline Py_ssize_t estimated_size(const Batch *b, double ratio) noexcept nogil:
    """Return the bytes that the batch will take in a request."""
    if ratio >= 1.0 or b.sealed:
        return batch_size_bytes(b)
    return BATCH_HEADER_BYTES + <Py_ssize_t>(<double>batch_size_bytes(b) * ratio)
