"""The body of a Produce request as small headers and pointers into slabs. See produce_request.pyx."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkaprod._core.accumulator cimport Accumulator
from kafkaprod._core.batch cimport Batch
from kafkaprod._core.buffer_pool cimport Slab


cdef class SlabBuffer


cdef class ProduceRequest:
    cdef readonly Accumulator accumulator
    cdef readonly int32_t node_id
    cdef Batch **batches            # sorted by topic, then partition
    cdef Py_ssize_t batch_count
    cdef readonly Py_ssize_t record_count
    cdef int _export_count          # buffers that somebody still holds
    cdef bint _is_finished

    cdef int add(self, Batch *b) except -1
    cdef int sort(self) noexcept
    cdef int _give_back(self) except -1
    cdef Py_ssize_t _topic_count(self) noexcept
    cdef Py_ssize_t _put_batch(self, list buffers, bytearray head, Batch *b, bint flexible) except -1
    cdef SlabBuffer _buffer(self, Slab *slab, Py_ssize_t size)


cdef class SlabBuffer:
    """A stretch of slab memory for sendmsg: a read-only buffer that pins its request while it is exported."""

    cdef ProduceRequest _request
    cdef Slab *_slab
    cdef uint32_t _generation
    cdef char *_start
    cdef Py_ssize_t _size
