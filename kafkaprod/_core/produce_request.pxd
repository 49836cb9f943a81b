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

    cdef bint reserve(self) noexcept nogil
    cdef void add(self, Batch *b) noexcept nogil
    cdef int sort(self) noexcept
    cdef int _give_back(self) except -1
    cdef Py_ssize_t _topic_count(self) noexcept


cdef struct Piece:
    Py_ssize_t start            # in the slab, or in the headers; below 0: a compressed batch
    Py_ssize_t size
    Slab *slab                  # or NULL
    uint32_t generation         # of the slab, when the body was made


cdef class RequestBody:
    cdef ProduceRequest _request
    cdef readonly Py_ssize_t nbytes
    cdef bytearray _head        # all headers in a row
    cdef Py_ssize_t _head_end   # what of it is in pieces
    cdef list _compressed
    cdef Piece *_pieces
    cdef Py_ssize_t _piece_count
    cdef Py_ssize_t _piece_capacity

    cdef int _put_piece(self, Py_ssize_t start, Py_ssize_t size, Slab *slab) except -1
    cdef int _end_head(self) except -1
    cdef int _put_batch(self, Batch *b, bint flexible) except -1
    cdef SlabBuffer _buffer(self, const Piece *piece, Py_ssize_t skipped)


cdef class SlabBuffer:
    """A stretch of slab memory for sendmsg: a read-only buffer that pins its request while it is exported."""

    cdef ProduceRequest _request
    cdef Slab *_slab
    cdef uint32_t _generation
    cdef char *_start
    cdef Py_ssize_t _size
