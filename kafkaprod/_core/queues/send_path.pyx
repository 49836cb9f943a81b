"""The compiled part of Producer.send: plain bytes to a known topic go straight into the accumulator.

So do records that the user's code must see first: interceptors, serializers, partitioner (`record_hooks`).
Everything else (a topic whose metadata is not here yet, a full pool, a closed producer) goes to the intake, which is given
as a callable and ends in Accumulator.append as well. Thread-safe.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

from kafkaprod._core.queues.accumulator cimport ANY_PARTITION
from kafkaprod._core.queues.completion cimport DeliveryFuture, take_reference
from kafkaprod._core.queues.record_hooks cimport HookedRecord, OF_DATA, RecordHooks, SerializerCall, own_headers
from kafkaprod._core.machine.clock cimport READ_CLOCK, wall_ms
from kafkaprod._core.machine.lock cimport FREE_THREADED
from kafkaprod._core.queues.topic_queues cimport partition_count
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_arguments cimport RecordArguments
from kafkaprod._core.records.record_view cimport NULL_LENGTH, RecordView

from kafkaprod.errors import ArgumentTypeError, IllegalStateError, InvalidRecordError

cdef extern from "Python.h":
    str PyUnicode_FromObject(object text)
    PyObject *PyObject_CallOneArg(object function, object argument)     # a new reference; NULL: it raised

cdef extern from "kafkaprod/_core/machine/machine.h":
    void share_among_threads "kp_share_among_threads"(object self)


cdef class RecordSender:
    """Takes single records.

    Args:
        accumulator: Where records go.
        send_general: Takes the arguments of send(), in order, for records that cannot go straight in.
        hooks: The user's code, if there is any.
        send_hooked: Takes a HookedRecord: one that cannot go straight in after the user's code has seen it.
    """

    def __init__(self, Accumulator accumulator not None, send_general not None, RecordHooks hooks=None, send_hooked=None):
        self.accumulator = accumulator
        self._send_general = send_general
        self._send_hooked = send_hooked
        self._hooks = hooks if hooks is not None and hooks.has_any else None
        self._last_generation = -1
        share_among_threads(self)

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """Queue one record and return its DeliveryFuture at once.

        Args:
            topic: Its name.
            value, key: bytes-like or None (null), or what the serializers take.
            headers: List of (str, bytes or None) pairs, or a dict; duplicates allowed in a list.
            partition: Partition number; None: by hash of the key, without a key by the sticky partitioner.
            timestamp_ms: ms since the epoch; None: now.

        Returns: a DeliveryFuture: result(timeout), add_callback(), awaitable.
        Raises: InvalidRecordError, RecordTooLargeError, SerializationError: fix the record. BufferFullError,
            MetadataTimeoutError after max_block_ms; BootstrapError, AuthenticationError if no broker was ever reached.
            ProducerClosedError, ForkedProducerError. Nothing is queued then.
        Thread safety: any number of threads; records of one thread keep their order per partition.
        """
        if type(topic) is not str:
            topic = _plain_topic(topic)
        outcome = self._try(<str>topic, value, key, headers, partition, timestamp_ms)
        if type(outcome) is DeliveryFuture:
            return outcome
        if outcome is None:
            return self._send_general(topic, value, key, headers, partition, timestamp_ms)
        return self._send_hooked(outcome)

    def try_send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """Like send(), but return None instead of waiting for metadata or memory, or if hooks are configured."""
        if type(topic) is not str:
            topic = _plain_topic(topic)
        return self._try(<str>topic, value, key, headers, partition, timestamp_ms) if self._hooks is None else None

    def begin_send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """Like send(), but never wait: return None, or a HookedRecord if the user's code has seen the record already."""
        if type(topic) is not str:
            topic = _plain_topic(topic)
        return self._try(<str>topic, value, key, headers, partition, timestamp_ms)

    cdef TopicQueues _find_topic(self, str name):
        """The topic's queues, remembered for the next record; None if its metadata is not here, or records wait for it."""
        if self.accumulator.held_topics and self.accumulator.held_topics.get(name):
            return None         # the general path knows which callers may pass them
        if FREE_THREADED:
            return self.accumulator.topics.get(name)
        cdef TopicQueues topic = self.accumulator.topics.get(name)
        if topic is not None:
            self._last_name = name
            self._last_topic = topic
            self._last_generation = self.accumulator.topics_generation
        return topic

    cdef object _try(self, str topic, object value, object key, object headers, object partition, object timestamp_ms):
        cdef RecordView r
        cdef int32_t chosen = ANY_PARTITION
        cdef TopicQueues queues
        if self.accumulator is None:
            raise IllegalStateError(f"{type(self).__name__}.__init__() has not run: a subclass must call it")
        if self.accumulator.backlog.is_closed:
            return None         # the general path gives the reason
        if self._hooks is not None:
            if self._hooks.only_serializes:
                return self._try_serialized(topic, value, key, headers, partition, timestamp_ms)
            if self._hooks.chain is None:
                return self._try_prepared(None, topic, value, key, headers, partition, timestamp_ms)
            return self._try_hooked(topic, value, key, headers, partition, timestamp_ms)
        if self._is_last(topic):
            queues = self._last_topic
        else:
            queues = self._find_topic(topic)
            if queues is None:
                return None
        if partition is not None:
            chosen = <int32_t>to_int64(partition, "partition", 0, INT32_MAX)
            if chosen >= partition_count(queues):
                return None
        r.timestamp = wall_ms() if timestamp_ms is None else to_int64(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        if headers is None and _take(value, &r.value, &r.value_length) and _take(key, &r.key, &r.key_length):
            r.headers = NULL
            r.header_count = 0
            r.headers_size = 1
            return self.accumulator.append_record(queues, chosen, &r, READ_CLOCK, 0)
        return self._append_any(queues, chosen, value, key, headers, r.timestamp)

    @cython.final
    cdef bint _is_last(self, str topic) noexcept:
        """Whether `topic` is that of the record before, so that `_last_topic` has its queues."""
        return (not FREE_THREADED and topic is self._last_name
                and self._last_generation == self.accumulator.topics_generation)

    @cython.final
    cdef object _append_any(self, TopicQueues queues, int32_t partition, object value, object key, object headers,
                            int64_t timestamp):
        """Append whatever the core takes; None: no memory."""
        cdef RecordArguments arguments = None
        cdef RecordView r
        if headers is None and _take(value, &r.value, &r.value_length) and _take(key, &r.key, &r.key_length):
            r.headers = NULL
            r.header_count = 0
            r.headers_size = 1
            r.timestamp = timestamp
            return self.accumulator.append_record(queues, partition, &r, READ_CLOCK, 0)
        arguments = self._spare_arguments
        self._spare_arguments = None            # another thread, or this one again, makes its own meanwhile
        if arguments is None:
            arguments = RecordArguments()
        try:
            return self.accumulator.append_record(
                queues, partition, arguments.fill(key, value, headers, timestamp), READ_CLOCK, 0
            )
        finally:
            arguments.clear()
            if not FREE_THREADED:
                self._spare_arguments = arguments

    @cython.final
    cdef object _try_serialized(self, str topic, object value, object key, object headers, object partition,
                                object timestamp_ms):
        """As _try_prepared where the user gave no more than serializers, which see no headers."""
        cdef RecordView r
        cdef int32_t chosen = ANY_PARTITION
        cdef TopicQueues queues
        cdef SerializerCall serializer
        queues = self._last_topic if self._is_last(topic) else self._find_topic(topic)
        if partition is not None:
            chosen = <int32_t>to_int64(partition, "partition", 0, INT32_MAX)
        if queues is None or chosen >= partition_count(queues):
            return None
        serializer = self._hooks.key_serializer
        if serializer is not None:
            key = _serialized(serializer, topic, key)
        serializer = self._hooks.value_serializer
        if serializer is not None:
            value = _serialized(serializer, topic, value)
        r.timestamp = wall_ms() if timestamp_ms is None else to_int64(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        _check_partition(queues, chosen, topic)
        if headers is None and _take(value, &r.value, &r.value_length) and _take(key, &r.key, &r.key_length):
            r.headers = NULL
            r.header_count = 0
            r.headers_size = 1
            future = self.accumulator.append_record(queues, chosen, &r, READ_CLOCK, 0)
        else:
            future = self._append_any(queues, chosen, value, key, headers, r.timestamp)
        if future is not None:
            return future
        record = (topic, value, key, headers, partition, timestamp_ms)
        return _prepared(record, self.accumulator, queues, chosen, value, key, headers, r.timestamp)

    @cython.final
    cdef object _try_hooked(self, str topic, object value, object key, object headers, object partition,
                            object timestamp_ms):
        """As _try, for a record that the user's code must see; a HookedRecord if it has seen it, but not more is possible."""
        cdef RecordHooks hooks = self._hooks
        cdef object record = None
        cdef object name = topic
        if hooks.chain.sees_records:
            record = hooks.chain.intercept(topic, value, key, headers, partition, timestamp_ms)
            name, value, key, headers, partition, timestamp_ms = <tuple>record
        try:
            # The general path takes a topic that is no exact str, or refuses it.
            return self._try_prepared(
                record, <str>name if type(name) is str else None, value, key, headers, partition, timestamp_ms
            )
        except Exception as error:
            hooks.chain.on_refused(name, partition, error)
            raise

    @cython.final
    cdef object _try_prepared(self, object record, str topic, object value, object key, object headers, object partition,
                              object timestamp_ms):
        """As _try_hooked, after the interceptors. Args: record: as they want it sent; None: there are none."""
        cdef RecordHooks hooks = self._hooks
        cdef int32_t chosen = ANY_PARTITION
        cdef TopicQueues queues = None
        cdef int64_t timestamp
        if topic is not None:
            queues = self._last_topic if self._is_last(topic) else self._find_topic(topic)
        if partition is not None:
            chosen = <int32_t>to_int64(partition, "partition", 0, INT32_MAX)
        if queues is None or chosen >= partition_count(queues):
            return None if record is None else _unprepared(record)
        if hooks.takes_headers:
            headers = own_headers(headers)
        if hooks.key_serializer is not None:
            key = hooks.key_serializer.run(topic, headers, key)
        if hooks.value_serializer is not None:
            value = hooks.value_serializer.run(topic, headers, value)
        if partition is None and hooks.partitioner is not None:
            chosen = hooks.partitioner.pick(topic, key, value, queues.leaders_now())
        timestamp = wall_ms() if timestamp_ms is None else to_int64(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        _check_partition(queues, chosen, topic)
        future = self._append_any(queues, chosen, value, key, headers, timestamp)
        if future is None:
            if record is None:
                record = (topic, value, key, headers, partition, timestamp_ms)
            return _prepared(record, self.accumulator, queues, chosen, value, key, headers, timestamp)
        if hooks.chain is not None:
            hooks.chain.watch(future)
        return future


cdef object _plain_topic(object topic):
    if not isinstance(topic, str):
        raise ArgumentTypeError(f"topic must be str, not {type(topic).__name__}")
    return PyUnicode_FromObject(topic)      # of a subclass, such as a StrEnum's member, a plain copy


cdef inline object _serialized(SerializerCall serializer, str topic, object data):
    """Return what SerializerCall.run() would: a call less, and the result's reference is not counted twice."""
    cdef PyObject *returned
    if serializer._form != OF_DATA:
        return serializer.run(topic, None, data)
    returned = PyObject_CallOneArg(serializer._function, data)
    if returned is NULL:
        serializer.wrap_error(topic, data)
    serialized = take_reference(returned)
    return serialized if PyBytes_CheckExact(serialized) else serializer.checked(topic, serialized)


cdef int _check_partition(TopicQueues queues, int32_t partition, str topic) except -1:
    """Check again: the user's code may have changed the topic."""
    if partition >= partition_count(queues):
        raise InvalidRecordError(
            f"partition={partition} of topic {topic!r} is outside 0..{partition_count(queues) - 1}"
        )
    return 0


cdef HookedRecord _unprepared(object record):
    cdef HookedRecord hooked = HookedRecord.__new__(HookedRecord)
    hooked.record = record
    return hooked


cdef HookedRecord _prepared(object record, Accumulator accumulator, TopicQueues queues, int32_t partition, object value,
                            object key, object headers, int64_t timestamp):
    cdef HookedRecord hooked = _unprepared(record)
    hooked.is_prepared = True
    hooked._accumulator = accumulator
    hooked._queues = queues
    hooked._partition = partition
    hooked._value = value
    hooked._key = key
    hooked._headers = headers
    hooked._timestamp = timestamp
    return hooked


cdef inline bint _take(object data, const char **pointer, Py_ssize_t *length) noexcept:
    """Point at exact bytes or None; False for anything else."""
    if PyBytes_CheckExact(data):
        pointer[0] = PyBytes_AS_STRING(data)
        length[0] = PyBytes_GET_SIZE(data)
        return True
    pointer[0] = NULL
    length[0] = NULL_LENGTH
    return data is None
