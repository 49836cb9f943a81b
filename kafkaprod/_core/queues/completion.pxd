"""What became of a batch, and a handle to one of its records."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.machine.lock cimport observe32
from kafkaprod._core.queues.batch cimport Batch
from kafkaprod._core.records.record_view cimport RecordView


cdef extern from "kafkaprod/_core/machine/machine.h":
    object take_reference "kp_take_reference"(PyObject *new_reference)


cdef class DeliveryFuture


cdef class BatchResult:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int32_t record_count
    cdef int _outcome                       # batch.Outcome; publish32 after the rest, outcome_of() before it
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time
    cdef readonly object error              # exception of a FAILED batch
    cdef readonly dict record_errors        # index in batch -> exception, for the records the broker named (KIP-467)
    cdef readonly list children             # of a SPLIT batch: (first index, BatchResult), ascending
    cdef readonly object ledger             # for the subclass: where failures are booked, or None
    cdef readonly object guard              # for the subclass: what refuses waits that could not end, or None
    cdef readonly bint calls_in_loop        # callbacks that are added in an event loop are called there
    cdef int _is_stored                     # it is in a journal; publish32 and observe32
    cdef list _stored_waiters               # objects to wake when it is, or has its outcome; guarded as _waiters; None: no one
    cdef bytearray _seen                    # of a failed batch, 1 for each record whose failure was looked at; None: no one
    cdef int32_t _seen_count
    # Guarded by a critical section on this object, which is the GIL where there is one; None: no one.
    cdef readonly list _waiters             # objects to wake
    cdef list _callbacks                    # in turn a DeliveryFuture, or None, and a callable
    cdef bint _is_told                      # the callbacks run or have run: a new one is called at once

    cdef bint _listen(self, DeliveryFuture future, object callback) except -1
    cdef int _call(self, DeliveryFuture future, object callback) except -1
    cdef int _remove(self, DeliveryFuture future, object callback) except -1
    cdef int _tell(self) except -1
    cdef int _note_stored(self) except -1
    cdef int _wake_stored_waiters(self) except -1
    cdef int _track(self) except -1


cdef class ResultMaker:
    cdef type _kind
    cdef object _ledger
    cdef object _guard
    cdef bint _calls_in_loop        # the kind has call_in_loop()

    cdef BatchResult _spare         # made ahead of need, in a critical section on this object; None: to be made

    cdef BatchResult _make(self, str topic, int32_t partition)
    cdef int prepare(self) except -1
    cdef int _refill(self) except -1


cdef class DeliveryFuture:
    cdef BatchResult _batch
    cdef int32_t _index
    cdef int32_t _key_size
    cdef int32_t _value_size
    cdef int64_t _timestamp

    cdef BatchResult _current(self, int32_t *index)
    cdef object _metadata(self, BatchResult batch, int32_t index)


cdef inline int outcome_of(BatchResult result) noexcept:
    """The batch.Outcome; unless it is PENDING, the result's other fields are there for who reads them next."""
    return observe32(&result._outcome)


cdef object batch_result(Batch *b, object factory, str topic)
cdef int publish(Batch *b, BatchResult result) except -1
cdef DeliveryFuture new_future()


cdef inline void fill_future(DeliveryFuture future, PyObject *result, int32_t index, const RecordView *r) noexcept:
    """Give the future its record. Args: result: a new reference to the batch's, which becomes the future's."""
    future._batch = <BatchResult>take_reference(result)
    future._index = index
    future._key_size = <int32_t>r.key_length
    future._value_size = <int32_t>r.value_length
    future._timestamp = r.timestamp
