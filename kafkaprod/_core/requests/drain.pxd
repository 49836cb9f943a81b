"""Which nodes can be sent to, and which batches go out. See drain.pyx."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport Batch, Partition
from kafkaprod._core.queues.waiting_line cimport Account
from kafkaprod._core.requests.batch_compressor cimport BatchCompressor
from kafkaprod._core.requests.produce_request cimport ProduceRequest


cdef class NodeQueues:
    """The partitions that one node leads, and where its next drain starts."""

    cdef readonly int32_t node_id
    cdef Account *account
    cdef Partition **partitions
    cdef Py_ssize_t partition_count
    cdef Py_ssize_t start


cdef class Drain:
    cdef readonly Accumulator accumulator
    cdef readonly int64_t linger_ms
    cdef readonly Py_ssize_t max_request_bytes
    cdef readonly bint is_idempotent
    cdef readonly bint mutes                # one batch in flight per partition: max_in_flight_requests == 1
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly bint reuses_sequences     # no newer epoch can be had: those of rejected batches are used again
    cdef public bint needs_stored           # only batches that are in a journal go out
    cdef readonly int64_t transaction       # number of the open one; 0: none is open, -1: not transactional
    cdef bint adds_implicitly               # the leader adds partitions to the transaction (KIP-890)
    cdef readonly bint has_new_members      # a partition waits to be added to the transaction
    cdef readonly bint has_drained          # a batch of the open transaction went out
    cdef readonly bint wants_epoch          # a partition waits for a newer producer epoch
    cdef readonly int64_t next_check_us     # when to call ready() again if nothing else happens
    cdef BatchCompressor compressor         # None: batches go out as they are
    cdef bint _leaves_more                  # what the drain in progress takes is not all
    cdef dict _nodes
    cdef bint _hurries                      # a thread waits for what ready() saw
    cdef dict _path_limits                  # node id -> bytes of a batch, and whether they were measured: limit_path()
    cdef bint _has_blocked                  # some account may be marked as that of a blocked node
    cdef int32_t _first_limit               # of a node that limit_path() has not named

    cdef bint _is_sendable(self, Partition *p, Batch *b, int64_t now_us, bint hurry, int64_t *wait_us) noexcept nogil
    cdef bint _is_member(self, const Partition *p) noexcept nogil
    cdef bint _is_unnamed(self, const Partition *p) noexcept nogil
    cdef bint _may_go(self, Partition *p, Batch *b, int64_t now_ms) noexcept nogil
    cdef bint _node_ready(self, NodeQueues node, int64_t now_us, bint hurry, int64_t *wait_us) noexcept nogil
    cdef void _take_all(self, NodeQueues node, int64_t now_ms, Py_ssize_t room, ProduceRequest request) noexcept nogil
    cdef Batch *_take(self, NodeQueues node, int64_t now_ms, Py_ssize_t room, const double *ratios, bint is_first,
                      Py_ssize_t *looked_at) noexcept nogil
    cdef int _find_waiting(self, NodeQueues node, set topics) except -1
    cdef void _take_head(self, Partition *p, Batch *b, int64_t now_ms) noexcept nogil
