"""The body of a Produce request as small headers and pointers into slabs. See produce_request.pyx."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Batch
from kafkaprod._core.queues.slabs cimport Slab


cdef class SlabBuffer


cdef struct Entry:              # of a request: what its loops want to know without looking at the batch
    Batch *batch
    int32_t topic_index
    int32_t partition
    int32_t record_count
    int64_t created_ms
    Py_ssize_t plain_size       # before compression
    Py_ssize_t size             # on the wire, once sealed


cdef class ProduceRequest:
    cdef readonly Accumulator accumulator
    cdef readonly int32_t node_id
    cdef Entry *entries             # by topic, then partition, from arrange() on
    cdef Py_ssize_t batch_count
    cdef readonly Py_ssize_t record_count
    cdef readonly bint leaves_more  # the node had more to send than fitted when it was drained
    cdef int _export_count          # buffers that are still held
    cdef bint _is_finished

    cdef bint reserve(self) noexcept nogil
    cdef void add(self, Batch *b) noexcept nogil
    cdef void seal(self, Py_ssize_t i) noexcept nogil
    cdef void arrange(self) noexcept nogil
    cdef Py_ssize_t topic_end(self, Py_ssize_t i) noexcept nogil
    cdef int _give_back(self) except -1


cdef struct Name:
    const char *start
    Py_ssize_t size


cdef struct Piece:
    Py_ssize_t start            # in the slab, or in the headers; below 0: a compressed batch
    Py_ssize_t size
    Slab *slab                  # or NULL
    uint32_t generation         # of the slab, when the body was made


cdef class RequestBody:
    cdef ProduceRequest _request
    cdef readonly Py_ssize_t nbytes
    cdef bytes _head            # all headers in a row, and the batches that are copied
    cdef char *_start           # of it
    cdef char *_at              # where its next byte goes
    cdef Py_ssize_t _head_end   # what of it is in pieces
    cdef object _head_view      # memoryview of it
    cdef list _blobs            # compressed batches that are pointed at
    cdef Py_ssize_t _blob_count     # how many of them are in pieces
    cdef Piece *_pieces
    cdef Py_ssize_t _piece_count
    cdef Py_ssize_t _piece_capacity

    cdef int _make_room(self, Py_ssize_t size) except -1
    cdef int _put_topics(self, const Name *names, bint flexible, bint by_id) noexcept nogil
    cdef int _put_piece(self, Py_ssize_t start, Py_ssize_t size, Slab *slab) noexcept nogil
    cdef int _end_head(self) noexcept nogil
    cdef int _point_at(self, Batch *b, Py_ssize_t size) noexcept nogil
    cdef SlabBuffer _buffer(self, const Piece *piece, Py_ssize_t skipped)


cdef class SlabBuffer:
    """A stretch of slab memory for sendmsg: a read-only buffer that pins its request while it is exported."""

    cdef ProduceRequest _request
    cdef Slab *_slab
    cdef uint32_t _generation
    cdef char *_start
    cdef Py_ssize_t _size
