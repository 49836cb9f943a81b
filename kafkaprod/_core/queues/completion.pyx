"""One result object per batch, and a small handle per record that reads from it.

A result is written once, by the sender thread, and read by any thread; how to wait is added by the Python subclass that
the accumulator is given (`kafkaprod.results.batch.BatchCompletion`). A split batch points at its children.

With thousands of partitions nearly every record opens a batch and has a result object of its own that no thread waits for.
So creating, settling and freeing one runs no Python code, and the garbage collector tracks it only once something is
attached that could be part of a cycle.
"""

cimport cython
from cpython.object cimport PyTypeObject
from cpython.ref cimport PyObject, Py_INCREF

from kafkaprod._core.queues.batch cimport FAILED, PENDING, SPLIT, SUCCEEDED
from kafkaprod._core.machine.lock cimport mutex_lock, mutex_unlock, observe32, observe_object, publish32, publish_object
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.machine.types cimport forbid_new

import functools

from kafkaprod.errors import IllegalStateError, copy_to_raise
from kafkaprod.structs import RecordMetadata

cdef extern from "Python.h":
    void PyObject_GC_Track(PyObject *thing)
    void PyObject_GC_UnTrack(PyObject *thing)
    bint PyObject_GC_IsTracked(PyObject *thing)
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t i)       # borrowed

cdef enum:
    ITEMS_AHEAD = 16    # prefetched, of a list of callbacks: two for each record

# What RecordMetadata(...) makes: a named tuple's own constructor is Python code and takes three times as long.
cdef object new_tuple = tuple.__new__
cdef tuple NO_ARGUMENTS = ()


cdef class BatchResult:
    """What became of one batch.

    Attributes:
        topic, partition: Where its records belong.
        record_count: How many they are; 0 while the batch still takes records.
        base_offset: Offset of the first record, -1 if unknown.
        log_append_time: ms, -1 if the records keep their own timestamps.
        error: Why all of them failed, else None.
        record_errors: Index -> exception for records that the broker named.
        children: The (first index, BatchResult) pairs of a split batch.
        ledger, guard: Fields for the subclass.
        calls_in_loop: The subclass has call_in_loop(), see DeliveryFuture.add_done_callback().
    """

    def __cinit__(self):
        PyObject_GC_UnTrack(<PyObject *>self)
        self.base_offset = -1
        self.log_append_time = -1

    def __init__(self, str topic not None, int32_t partition, ledger=None, guard=None):
        self.topic = topic
        self.partition = partition
        self.ledger = ledger
        self.guard = guard

    cdef int _track(self) except -1:
        if not PyObject_GC_IsTracked(<PyObject *>self):
            PyObject_GC_Track(<PyObject *>self)
        return 0

    @property
    def outcome(self):
        """The batch.Outcome, as a number."""
        return outcome_of(self)

    @property
    def is_done(self):
        """Whether the outcome is known (of every child, if the batch was split)."""
        if outcome_of(self) == SPLIT:
            return all(child.is_done for _, child in self.children)
        return outcome_of(self) != PENDING

    @property
    def is_split(self):
        """Whether the records live on in `children`."""
        return outcome_of(self) == SPLIT

    def error_of(self, int32_t index):
        """The exception of record `index` of a failed batch, None of one that succeeded or is pending."""
        if outcome_of(self) != FAILED:
            return None
        if self.record_errors is not None and index in self.record_errors:
            return self.record_errors[index]
        return self.error

    def mark_seen(self, int32_t first, int32_t count=1):
        """Note that the failure of `count` records from index `first` on was looked at: flush() need not report it."""
        cdef int32_t i
        with cython.critical_section(self):
            if self._seen is None:
                self._seen = bytearray(self.record_count)
            for i in range(max(first, 0), min(<int64_t>first + count, self.record_count)):
                if not self._seen[i]:
                    self._seen[i] = 1
                    self._seen_count += 1
        if self._seen_count == self.record_count:
            self.on_all_seen()

    @property
    def unseen_count(self):
        """Records of a failed batch whose failure was not looked at."""
        return self.record_count - self._seen_count

    @property
    def first_unseen_error(self):
        """The error of a record whose failure was not looked at; None if all were.

        The first one that the broker named, if it named any: only its error says what is wrong.
        """
        cdef bytearray seen = self._seen
        cdef Py_ssize_t index = 0 if seen is None else seen.find(b"\0")
        if self.record_errors is not None:
            for named in sorted(self.record_errors):
                if seen is None or not seen[named]:
                    return self.record_errors[named]
        return None if index < 0 else self.error_of(<int32_t>index)

    def on_all_seen(self):
        """Called once the failures of all records were looked at. Subclasses correct their books here."""

    def on_failure(self):
        """Called once by the sender thread when the batch has failed, before waiters and callbacks. Subclasses record it here."""

    def on_callback_error(self):
        """Called while the exception that a callback raised is handled. Subclasses log and count it here."""

    def add_listener(self, listener):
        """Call `listener()` when the outcome is known: later on the sender thread, or now if it is known.

        What it raises goes to on_callback_error(). Listeners and records' callbacks are called in the order they came.
        """
        if not self._listen(None, listener):
            self._call(None, listener)

    def add_waiter(self, waiter):
        """Call `waiter.wake()` when the outcome is known; return False if it is known already. wake() must not raise."""
        with cython.critical_section(self):
            if self._is_told:
                return False
            self._track()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
        return True

    def remove_waiter(self, waiter):
        """Undo add_waiter() or add_stored_waiter(); nothing if it was woken, or never added."""
        with cython.critical_section(self):
            _remove_waiter(self._waiters, waiter)
            _remove_waiter(self._stored_waiters, waiter)

    @property
    def is_stored(self):
        """Whether its records are in the producer's spool, or were until they had their outcome."""
        return observe32(&self._is_stored) != 0

    def add_stored_waiter(self, waiter):
        """Call `waiter.wake()` when it is stored or its outcome is known; return False if that is so. wake() must not raise."""
        with cython.critical_section(self):
            if self._is_told or self._is_stored:
                return False
            self._track()
            if self._stored_waiters is None:
                self._stored_waiters = []
            self._stored_waiters.append(waiter)
        return True

    cdef int _note_stored(self) except -1:
        """Note that it is in the spool, and wake who waits for that."""
        publish32(&self._is_stored, 1)
        self._wake_stored_waiters()
        return 0

    cdef int _wake_stored_waiters(self) except -1:
        cdef list waiters
        with cython.critical_section(self):
            waiters = self._stored_waiters
            self._stored_waiters = None
        if waiters is not None:
            for waiter in waiters:
                waiter.wake()
        return 0

    cdef bint _listen(self, DeliveryFuture future, object callback) except -1:
        """Have the callback called by _tell(); False if that is too late."""
        with cython.critical_section(self):
            if self._is_told:
                return False
            self._track()
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(future)
            self._callbacks.append(callback)
        return True

    cdef int _remove(self, DeliveryFuture future, object callback) except -1:
        """Undo _listen(); return how many were removed."""
        cdef list kept = []
        cdef Py_ssize_t i
        cdef Py_ssize_t before = 0
        with cython.critical_section(self):
            if self._callbacks is None:
                return 0
            before = len(self._callbacks)
            for i in range(0, before, 2):
                if self._callbacks[i] is not future or self._callbacks[i + 1] != callback:
                    kept.append(self._callbacks[i])
                    kept.append(self._callbacks[i + 1])
            self._callbacks = kept
        return <int>((before - len(kept)) // 2)

    cdef int _call(self, DeliveryFuture future, object callback) except -1:
        cdef int32_t index
        try:
            if future is None:
                callback()
            elif outcome_of(future._current(&index)) != PENDING:
                callback(future)
            else:
                future.add_done_callback(callback)      # the batch was split: listen to the part that holds the record
        except BaseException:       # sys.exit() in a callback must not end the sender thread
            self.on_callback_error()
        return 0

    cdef int _tell(self) except -1:
        """Wake all waiters and run all callbacks, once."""
        cdef list waiters
        cdef list callbacks
        cdef DeliveryFuture future
        cdef Py_ssize_t i
        with cython.critical_section(self):
            if self._is_told:
                raise IllegalStateError(f"the outcome of a batch of {self.topic}[{self.partition}] was published before")
            self._is_told = True
            waiters = self._waiters
            callbacks = self._callbacks
            self._waiters = None
            self._callbacks = None
        if self._stored_waiters is not None:
            self._wake_stored_waiters()
        if waiters is not None:
            for waiter in waiters:
                waiter.wake()
        if callbacks is not None:
            callbacks.reverse()     # the first is taken first: each future is freed at once, while it is in the cache
            while callbacks:
                i = len(callbacks) - 1 - ITEMS_AHEAD
                if i >= 0:
                    prefetch_write(PyList_GET_ITEM(callbacks, i))
                future = callbacks.pop()
                self._call(future, callbacks.pop())
        return 0


cdef int _remove_waiter(list waiters, object waiter) except -1:
    cdef Py_ssize_t i
    if waiters is not None:
        for i in range(len(waiters)):
            if waiters[i] is waiter:
                del waiters[i]
                break
    return 0


@cython.final
cdef class ResultMaker:
    """Makes results as `kind(topic, partition, ledger, guard)` does, without a call through Python.

    Args: kind: BatchResult, or a subclass that has no constructor of its own.
    """

    def __cinit__(self, type kind not None, ledger=None, guard=None):
        if not issubclass(kind, BatchResult) or kind.__init__ is not BatchResult.__init__:
            raise TypeError(f"{kind.__name__} is no subclass of BatchResult, or has a constructor of its own")
        self._kind = kind
        self._ledger = ledger
        self._guard = guard
        self._calls_in_loop = hasattr(kind, "call_in_loop")

    def __call__(self, str topic not None, int32_t partition):
        return self._make(topic, partition)

    cdef BatchResult _make(self, str topic, int32_t partition):
        cdef BatchResult result = None
        with cython.critical_section(self):
            if self._spare is None:
                self._refill()
            result = self._spare
            self._spare = None
        result.topic = topic
        result.partition = partition
        result.ledger = self._ledger
        result.guard = self._guard
        result.calls_in_loop = self._calls_in_loop
        return result

    cdef int prepare(self) except -1:
        """Make the next result now, where a want of memory does no harm."""
        with cython.critical_section(self):
            if self._spare is None:
                self._refill()
        return 0

    cdef int _refill(self) except -1:
        self._spare = (<PyTypeObject *>self._kind).tp_new(self._kind, <PyObject *>NO_ARGUMENTS, NULL)
        return 0


@cython.final
@cython.freelist(4096)
@cython.no_gc       # cycles through callbacks end with the outcome; tracking would cost a tenth of a send
cdef class DeliveryFuture:
    """The outcome of one record, now or later. Made by `send`; reading is thread-safe."""

    cdef BatchResult _current(self, int32_t *index):
        cdef BatchResult batch = self._batch
        index[0] = self._index
        while outcome_of(batch) == SPLIT:
            for first, child in reversed(batch.children):
                if index[0] >= first:
                    index[0] -= <int32_t>first
                    batch = child
                    break
        return batch

    @property
    def topic(self):
        """The record's topic."""
        return self._batch.topic

    @property
    def partition(self):
        """The record's partition."""
        return self._batch.partition

    def done(self):
        """Whether the outcome is known."""
        cdef int32_t index
        return outcome_of(self._current(&index)) != PENDING

    def result(self, timeout=None):
        """Wait for the outcome and return its RecordMetadata.

        Args: timeout: seconds, None to wait as long as it takes (delivery_timeout_ms bounds that).
        Raises TimeoutError if it is not known in time, else the record's own error.
        """
        cdef int32_t index
        cdef BatchResult batch = self._current(&index)
        while outcome_of(batch) == PENDING:
            if not batch.wait(timeout):
                raise TimeoutError(f"no outcome for a record of {batch.topic}[{batch.partition}] within {timeout} s")
            batch = self._current(&index)
        if outcome_of(batch) == FAILED:
            batch.mark_seen(index)
            raise copy_to_raise(batch.error_of(index))
        return self._metadata(batch, index)

    def spooled(self, timeout=None):
        """Wait until the record is in the producer's spool; return whether it is, or was until it had its outcome.

        With spool_sync="each" it is on the disk then; else it outlives the process, and the system after the next sync.
        Args: timeout: seconds; 0 only looks. False: it has failed before, there is no spool, or the time is over.
        """
        cdef int32_t index
        cdef BatchResult batch = self._current(&index)
        while not batch.is_stored and outcome_of(batch) == PENDING:
            if not batch.wait_stored(timeout):
                break
            batch = self._current(&index)
        return batch.is_stored

    def get(self, timeout=None):
        """Same as result(); kafka-python's name for it."""
        return self.result(timeout)

    def exception(self, timeout=None):
        """Wait for the outcome and return the record's error, None if it was delivered.

        Raises TimeoutError if the outcome is not known within `timeout` seconds.
        """
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise
            return error
        return None

    def peek_error(self):
        """Return the record's error, None if it was delivered or is pending. Unlike exception() it does not count as a look."""
        cdef int32_t index
        cdef BatchResult batch = self._current(&index)
        error = batch.error_of(index)
        return None if error is None else copy_to_raise(error)

    def succeeded(self):
        """Whether the record is known to be delivered."""
        cdef int32_t index
        return outcome_of(self._current(&index)) == SUCCEEDED

    def failed(self):
        """Whether the record is known to have failed."""
        cdef int32_t index
        return outcome_of(self._current(&index)) == FAILED

    def add_done_callback(self, callback, *, context=None):
        """Call `callback(future)` once the outcome is known: on the sender thread, or at once if it is known now.

        The future of an AsyncProducer does as asyncio's where an event loop runs: that loop calls it, soon.

        Args: context: the contextvars.Context to call it in; None: in an event loop a copy of the current one.
        """
        cdef int32_t index
        cdef BatchResult batch = self._current(&index)
        if batch.calls_in_loop and batch.call_in_loop(self, callback, context):
            return
        if context is not None:
            callback = functools.partial(context.run, callback)
        if not batch._listen(self, callback):
            batch._call(self, callback)

    def remove_done_callback(self, callback):
        """Undo add_done_callback() without a context, or in this event loop; return how many were removed."""
        cdef int32_t index
        cdef BatchResult batch = self._current(&index)
        cdef int removed = batch._remove(self, callback)
        return removed + batch.forget_in_loop(self, callback) if batch.calls_in_loop else removed

    def cancel(self, msg=None):
        """Return False: a queued record is taken back by purge() alone. Here for code that cancels what is pending."""
        return False

    def cancelled(self):
        """Return False: the outcome of a record is its metadata or an error."""
        return False

    def add_callback(self, callback, *args, **kwargs):
        """Call `callback(*args, record_metadata, **kwargs)` if the record is delivered (kafka-python). Returns self."""
        def deliver(future):
            if future.succeeded():
                callback(*args, future.result(0), **kwargs)
        self.add_done_callback(deliver)
        return self

    def add_errback(self, callback, *args, **kwargs):
        """Call `callback(*args, error, **kwargs)` if the record fails (kafka-python). Returns self."""
        def deliver(future):
            if future.failed():
                callback(*args, future.exception(0), **kwargs)
        self.add_done_callback(deliver)
        return self

    def add_both(self, callback, *args, **kwargs):
        """add_callback and add_errback with the same function. Returns self."""
        return self.add_callback(callback, *args, **kwargs).add_errback(callback, *args, **kwargs)

    def __await__(self):
        """Await the RecordMetadata inside asyncio; raises the record's own error."""
        cdef int32_t index
        return self._current(&index).await_record(self)

    def __repr__(self):
        cdef int32_t index
        cdef BatchResult batch = self._current(&index)
        state = "pending"
        if outcome_of(batch) == SUCCEEDED:
            state = f"offset {batch.base_offset + index if batch.base_offset >= 0 else -1}"
        elif outcome_of(batch) == FAILED:
            state = f"failed: {batch.error_of(index)!r}"
        return f"<DeliveryFuture {batch.topic}[{batch.partition}] {state}>"

    cdef object _metadata(self, BatchResult batch, int32_t index):
        return new_tuple(RecordMetadata, (
            batch.topic,
            batch.partition,
            batch.base_offset + index if batch.base_offset >= 0 else -1,
            batch.log_append_time if batch.log_append_time >= 0 else self._timestamp,
            self._key_size,
            self._value_size,
        ))


forbid_new(DeliveryFuture)


def refused_record(ResultMaker maker not None, str topic not None, int32_t partition, error not None):
    """Return the handle of a record that entered no batch: it has failed with `error`, which no ledger has."""
    cdef BatchResult result = maker._make(topic, partition)
    cdef DeliveryFuture future = new_future()
    result.ledger = None
    result.record_count = 1
    result.error = error
    result._track()
    result._outcome = FAILED    # plain: no other thread has it
    result._tell()              # callbacks that are added later are called at once
    future._batch = result
    future._index = 0
    future._key_size = future._value_size = -1
    future._timestamp = -1
    return future


def parked_record(ResultMaker maker not None, str topic not None, int32_t partition):
    """Return the handle of a record that waits for its topic's metadata; settle_parked() gives it the outcome."""
    cdef DeliveryFuture future = new_future()
    future._batch = maker._make(topic, partition)
    future._batch.record_count = 1
    future._index = 0
    future._key_size = future._value_size = -1
    future._timestamp = -1
    return future


def settle_parked(DeliveryFuture parked not None, outcome not None):
    """Let a parked record live on as one that is in a batch now, or fail.

    Args: outcome: the DeliveryFuture of the record in its batch, or an error.
    """
    cdef BatchResult result = parked._batch
    cdef DeliveryFuture sent
    result._track()
    if type(outcome) is DeliveryFuture:
        sent = <DeliveryFuture>outcome
        parked._key_size = sent._key_size
        parked._value_size = sent._value_size
        parked._timestamp = sent._timestamp
        result.partition = sent._batch.partition
        result.children = [(-sent._index, sent._batch)]     # as of a split batch: record 0 is that one's record _index
        publish32(&result._outcome, SPLIT)
    else:
        result.error = outcome
        publish32(&result._outcome, FAILED)
        result.on_failure()
    result._tell()


cdef DeliveryFuture new_future():
    """Return a future without a record; fill_future() gives it one."""
    return DeliveryFuture.__new__(DeliveryFuture)


cdef object batch_result(Batch *b, object factory, str topic):
    """Return the batch's result object; the first call makes it. Needs the GIL; the caller holds a reference to b."""
    cdef BatchResult result
    cdef PyObject *known = observe_object(&b.completion)
    cdef bint is_done
    if known is not NULL:
        return <object>known
    if type(factory) is ResultMaker:
        result = (<ResultMaker>factory)._make(topic, b.partition.index)
    else:
        result = factory(topic, b.partition.index)
    # The outcome is set under the same lock: either this sees it, or publish() sees the object.
    mutex_lock(&b.partition.lock)
    known = b.completion
    is_done = b.outcome != PENDING
    result._is_stored = b.is_stored
    if known is NULL:
        publish_object(&b.completion, <PyObject *>result)
        if b.partition.open.batch == b:
            b.partition.open.completion = b.completion
    mutex_unlock(&b.partition.lock)
    if known is not NULL:
        return <object>known
    Py_INCREF(result)
    if is_done:
        publish(b, result)
    return result


cdef int publish(Batch *b, BatchResult result) except -1:
    """Copy the batch's outcome to its result object, then wake and call those who wait. Once per batch."""
    _copy_outcome(b, result)
    if b.error is not NULL:
        result.on_failure()
    result._tell()
    return 0


cdef int _copy_outcome(Batch *b, BatchResult result) except -1:
    if b.error is not NULL or b.children is not NULL:
        result._track()
    result.record_count = b.record_count
    result.base_offset = b.base_offset
    result.log_append_time = b.log_append_time
    if b.error is not NULL:
        result.error = <object>b.error
    if b.record_errors is not NULL:
        result.record_errors = <dict>b.record_errors
    if b.children is not NULL:
        result.children = <list>b.children
    publish32(&result._outcome, b.outcome)      # last: readers look at it first
    return 0
