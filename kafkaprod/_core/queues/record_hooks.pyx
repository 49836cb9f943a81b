"""The user's code on the way of one record: interceptors, serializers, partitioner, called by the compiled path.

The classes are the compiled bases of those in `kafkaprod.hooks`, which find out what the user gave and add what blocks of
records need. All run on the caller's thread, with the GIL, and are as thread-safe as the user's code.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from kafkaprod._core.queues.completion cimport BatchResult

import itertools
import logging
from collections.abc import Iterable, Mapping

from kafkaprod.errors import InvalidRecordError, SerializationError
from kafkaprod.structs import RecordMetadata

logger = logging.getLogger("kafkaprod.hooks.interceptors")

cdef extern from "Python.h":
    PyObject *PyObject_CallOneArg(object function, object argument)     # a new reference; NULL: it raised
    object PyType_GenericAlloc(type kind, Py_ssize_t count)
    void PyTuple_SET_ITEM(PyObject *items, Py_ssize_t i, PyObject *item)

cdef dict FORMS = {"data": OF_DATA, "topic": OF_TOPIC, "headers": OF_HEADERS, "context": OF_CONTEXT}


cdef int _raise_pending() except -1:
    """Pass on the error that a call into Python has left."""
    return -1


cdef class SerializerCall:
    """A serializer of keys or of values in the form in which it wants to be called.

    Args:
        function: The user's.
        form: "data": function(data). "topic": function(topic, data). "headers": function(topic, headers, data).
            "context": function(data, context_type(topic, field, headers)).
        field: `key` or `value`. name: for messages.
    """

    def __init__(self, function not None, str form not None, str field not None, str name not None,
                 type context_type=None):
        self._function = function
        self._form = FORMS[form]
        if self._form == OF_CONTEXT:
            self._context_type = named_tuple_type(context_type)
        self._name = name
        self.field = field
        self.takes_headers = self._form == OF_HEADERS or self._form == OF_CONTEXT

    def __call__(self, str topic, headers, data):
        """Return the bytes of `data`; None for null.

        Raises:
            SerializationError: The serializer raised (its error is the cause) or returned something else.
        """
        return self.run(topic, headers, data)

    @cython.final
    cdef object run(self, str topic, object headers, object data):
        cdef PyObject *returned
        if self._form != OF_DATA:
            return self.checked(topic, self.call_with_more(topic, headers, data))
        # Neither `try` nor Cython's general call: together they cost as much as a short function of the user's.
        returned = PyObject_CallOneArg(self._function, data)
        if returned is NULL:
            self.wrap_error(topic, data)
        serialized = <object>returned
        Py_DECREF(serialized)
        return serialized if PyBytes_CheckExact(serialized) else self.checked(topic, serialized)

    @cython.final
    cdef object call_with_more(self, str topic, object headers, object data):
        try:
            if self._form == OF_TOPIC:
                return self._function(topic, data)
            if self._form == OF_HEADERS:
                return self._function(topic, headers, data)
            return self._function(data, new_named_tuple(self._context_type, (topic, self.field, headers)))
        except Exception as error:
            raise self.failed(topic, data, error) from error

    @cython.final
    cdef int wrap_error(self, str topic, object data) except -1:
        """Raise what the serializer has raised, as a SerializationError unless it ends the program."""
        try:
            return _raise_pending()
        except Exception as error:
            raise self.failed(topic, data, error) from error

    @cython.final
    cdef object failed(self, str topic, object data, object error):
        return SerializationError(
            f"{self.field} serializer {self._name} raised {type(error).__name__} for a {type(data).__name__} of "
            f"topic {topic!r}: {error}"
            + (f" (no {self.field} was given: serializers are called with None, too)" if data is None else ""),
            topic=topic,
        )

    @cython.final
    cdef object checked(self, str topic, object serialized):
        if serialized is None or isinstance(serialized, (bytes, bytearray, memoryview)):
            return serialized
        raise SerializationError(
            f"{self.field} serializer {self._name} returned a {type(serialized).__name__} for topic {topic!r}, "
            "expected bytes or None",
            topic=topic,
        )

    def rows(self, str topic, list headers, list data):
        """Return the bytes of a block of records, as a list.

        Args: headers: of each row, or None for no headers in any.
        Raises: SerializationError naming the row.
        """
        cdef list out = []
        cdef Py_ssize_t i = 0
        try:
            # The user's code may change the length of either list.
            while i < len(data) and (headers is None or i < len(headers)):
                out.append(self.run(topic, None if headers is None else headers[i], data[i]))
                i += 1
        except SerializationError as error:
            raise SerializationError(f"row {i}: {error}", topic=topic) from error
        return out


cdef class InterceptorCalls:
    """Interceptors in their order. Those that fail are skipped, logged and counted.

    Args: interceptors: each has on_send, on_acknowledgement or both. record_type: the named tuple that on_send is given.

    Attributes:
        failure_count: How often one raised or returned something that is not a record.
    """

    def __init__(self, interceptors not None, type record_type not None):
        cdef tuple each_one = tuple(interceptors)
        self._on_send = [each for each in each_one if callable(getattr(each, "on_send", None))]
        self._on_acknowledgement = [each for each in each_one if callable(getattr(each, "on_acknowledgement", None))]
        self.sees_records = bool(self._on_send)
        self._record_type = named_tuple_type(record_type)
        self._failures = itertools.count(1)
        self._acknowledge_callback = self._acknowledge

    def __bool__(self):
        """Whether there is anything to call."""
        return bool(self._on_send or self._on_acknowledgement)

    def on_send(self, record):
        """Return the record after all interceptors; skip one that fails."""
        return self.pass_on(record)

    @cython.final
    cdef object intercept(self, str topic, object value, object key, object headers, object partition, object timestamp_ms):
        """As on_send, of a record that is not made yet."""
        return self.pass_on(new_named_tuple(self._record_type, (topic, value, key, headers, partition, timestamp_ms)))

    @cython.final
    cdef object pass_on(self, object record):
        for interceptor in self._on_send:
            try:
                answer = interceptor.on_send(record)
                if not isinstance(answer, self._record_type):
                    raise TypeError(f"on_send returned a {type(answer).__name__}, expected a ProducerRecord")
                record = answer
            except Exception as error:
                self.count_failure(interceptor, "on_send", error)
        return record

    def on_acknowledgement(self, metadata, error=None):
        """Pass an outcome to all interceptors."""
        self.acknowledge(metadata, error)

    @cython.final
    cdef int acknowledge(self, object metadata, object error) except -1:
        for interceptor in self._on_acknowledgement:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception as failure:
                self.count_failure(interceptor, "on_acknowledgement", failure)
        return 0

    def on_refused(self, topic, partition, error):
        """Pass a record that was not even queued to all interceptors."""
        self.acknowledge(RecordMetadata(topic, -1 if partition is None else partition, -1, -1), error)

    def watch_outcome(self, DeliveryFuture future not None):
        """Pass the record's outcome to the interceptors when it is known."""
        self.watch(future)

    @cython.final
    cdef int watch(self, DeliveryFuture future) except -1:
        cdef int32_t index
        cdef BatchResult batch
        if self._on_acknowledgement:
            batch = future._current(&index)
            if not batch._listen(future, self._acknowledge_callback):
                batch._call(future, self._acknowledge_callback)
        return 0

    def _acknowledge(self, DeliveryFuture future not None):
        error = future.peek_error()     # exception() would count as a look, and flush() keep silent about the failure
        if error is None:
            self.acknowledge(future.result(0), None)
        else:
            self.acknowledge(RecordMetadata(future.topic, future.partition, -1, -1), error)

    def note_failure(self, interceptor, str method not None, error):
        """Count and log an interceptor that failed; called while its error is handled."""
        self.count_failure(interceptor, method, error)

    @cython.final
    cdef int count_failure(self, object interceptor, str method, object error) except -1:
        cdef int64_t count = next(self._failures)       # no lock: signal handlers send records, too
        self.failure_count = count
        if count & (count - 1) == 0:    # 1, 2, 4, 8 ...: a broken interceptor must not flood the log
            name = type(interceptor).__qualname__
            logger.error("interceptor %s.%s failed; %d failures so far", name, method, count, exc_info=error)
        return 0


cdef class PartitionerCall:
    """A partitioner whose answers are checked.

    Args: partitioner: has partition(topic, key, value, partition_count, available).
    """

    def __init__(self, partitioner not None):
        self._partitioner = partitioner
        self._name = type(partitioner).__qualname__
        self._available = {}

    def choose(self, str topic, key, value, leaders not None):
        """Return the partition of one record.

        Args:
            topic: The topic of the record.
            key: Serialized; None for null.
            value: Serialized; None for null.
            leaders: The leaders of all partitions, -1 where there is none; the tuple of a cluster snapshot.

        Raises:
            InvalidRecordError: The partitioner raised (its error is the cause) or named no partition of the topic.
        """
        return self.pick(topic, key, value, leaders)

    def choose_rows(self, str topic, keys, values not None, leaders not None, int32_t[::1] out not None):
        """Set the partitions of a block of records; one call of the partitioner each.

        Args:
            keys, values: Sequences of bytes or None, of equal length; keys None: no record has one.
            out: An array of as many.
        """
        cdef object partition = self._partitioner.partition
        cdef object available = self.known_available(topic, leaders)
        cdef Py_ssize_t count = len(leaders)
        cdef Py_ssize_t row = 0
        for key, value in zip(itertools.repeat(None) if keys is None else keys, values, strict=keys is not None):
            if row >= out.shape[0]:
                raise ValueError(f"more rows than the {out.shape[0]} to set")
            out[row] = self.checked(partition, topic, key, value, count, available)
            row += 1

    @cython.final
    cdef int32_t pick(self, str topic, object key, object value, object leaders) except -1:
        return self.checked(self._partitioner.partition, topic, key, value, len(leaders), self.known_available(topic, leaders))

    @cython.final
    cdef int32_t checked(
        self, object partition, str topic, object key, object value, Py_ssize_t count, object available
    ) except -1:
        try:
            chosen = PyNumber_Index(partition(topic, key, value, count, available))
        except Exception as error:
            raise self.failed(topic, error) from error
        if not 0 <= chosen < count:
            raise self.out_of_range(topic, chosen, count)
        return <int32_t>chosen

    def available_of(self, str topic, leaders not None):
        """Return the partitions that have a leader, ascending."""
        return self.known_available(topic, leaders)

    @cython.final
    cdef tuple known_available(self, str topic, object leaders):
        cdef tuple known = self._available.get(topic)
        if known is None or known[0] is not leaders:    # snapshots replace the tuple when a leader changes
            available = tuple([partition for partition, leader in enumerate(leaders) if leader >= 0])
            known = (leaders, available)
            self._available[topic] = known
        return known[1]

    def failed(self, str topic, error):
        """Return the error for a partitioner that raised."""
        what = f"partitioner {self._name} failed for topic {topic!r}: {type(error).__name__}: {error}"
        return InvalidRecordError(what, topic=topic)

    def out_of_range(self, str topic, partition, count, str which=""):
        """Return the error for a partition that the topic does not have."""
        what = f"partitioner {self._name} chose partition {partition} of topic {topic!r}{which}, which has {count}"
        return InvalidRecordError(what, topic=topic, partition=partition)


cdef class RecordHooks:
    """What a producer calls for each record; None where the user gave nothing.

    Attributes:
        takes_headers: Whether a serializer sees the record's headers; it may append to them then, as in Java.
        only_serializes: Whether there are no more than serializers that see the data and the topic.
        has_any: Whether there is anything to call.
    """

    def __init__(self, SerializerCall key_serializer=None, SerializerCall value_serializer=None,
                 PartitionerCall partitioner=None, InterceptorCalls chain=None):
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.partitioner = partitioner
        self.chain = chain
        self.takes_headers = ((key_serializer is not None and key_serializer.takes_headers)
                              or (value_serializer is not None and value_serializer.takes_headers))
        self.only_serializes = partitioner is None and chain is None and not self.takes_headers
        self.has_any = not (key_serializer is None and value_serializer is None and partitioner is None and chain is None)


cdef class HookedRecord:
    """A record that the interceptors have seen and that must wait: for its topic, or, once prepared, for memory.

    Attributes:
        record: A ProducerRecord, as the interceptors want it sent.
        is_prepared: Whether serializers and partitioner have seen it, too.
    """

    def append(self, int64_t ticket):
        """Accumulator.append of a prepared record; None: no memory."""
        return self._accumulator.append(
            self._queues, self._key, self._value, self._headers, self._partition, self._timestamp, -1, ticket
        )

    def need(self):
        """Return the memory in bytes that a prepared record waits for."""
        return Accumulator.memory_need(self._key, self._value, self._headers)


cdef type named_tuple_type(type kind):
    """Return the type if new_named_tuple() can make objects of it."""
    if kind is None or not issubclass(kind, tuple) or kind.__itemsize__ != tuple.__itemsize__ or kind.__dictoffset__:
        raise TypeError(f"{kind!r} is not a named tuple")
    return kind


cdef object new_named_tuple(type kind, tuple items):
    """Return what kind(*items) would; a named tuple's own constructor is Python code and takes three times as long."""
    cdef Py_ssize_t i
    cdef Py_ssize_t count = len(items)
    cdef object made = PyType_GenericAlloc(kind, count)
    for i in range(count):
        item = items[i]
        Py_INCREF(item)
        PyTuple_SET_ITEM(<PyObject *>made, i, <PyObject *>item)
    return made


cdef object own_headers(object headers):
    """Return a record's headers as a list of its own; what is no sequence of pairs is left for the core to refuse."""
    if headers is None:
        return []
    if type(headers) is list:
        return list(headers)
    if isinstance(headers, Mapping):
        return list(headers.items())
    return list(headers) if isinstance(headers, Iterable) else headers


def headers_list(headers):
    """Return a record's headers as a list of its own; what is no sequence of pairs is returned as it is."""
    return own_headers(headers)
