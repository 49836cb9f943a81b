"""The compiled part of Producer.send: plain bytes to a known topic go straight into the accumulator.

Everything else (a topic whose metadata is not here yet, objects to serialize, a full pool, a closed producer) goes to
the intake, which is given as a callable and ends in Accumulator.append as well. Thread-safe.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t

from kafkaprod._core.queues.accumulator cimport ANY_PARTITION, TopicQueues
from kafkaprod._core.machine.clock cimport READ_CLOCK, wall_ms
from kafkaprod._core.machine.lock cimport FREE_THREADED
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_arguments cimport RecordArguments
from kafkaprod._core.records.record_view cimport NULL_LENGTH, RecordView

from kafkaprod.errors import IllegalStateError


cdef class RecordSender:
    """Takes single records.

    Args:
        accumulator: where records go.
        send_general: takes the arguments of send(), in order, for records that cannot go straight in.
        must_take_general_path: whether that is all records, such as those that serializers must see.
    """

    def __cinit__(self):
        self.must_take_general_path = True      # until __init__ has run

    def __init__(self, Accumulator accumulator not None, send_general not None, bint must_take_general_path=False):
        self.accumulator = accumulator
        self.must_take_general_path = must_take_general_path
        self._send_general = send_general
        self._last_generation = -1

    def send(self, str topic not None, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """Queue one record and return its DeliveryFuture at once.

        Args:
            topic: its name.
            value, key: bytes-like or None (null), or what the serializers take.
            headers: list of (str, bytes or None) pairs, or a dict; duplicates allowed in a list.
            partition: partition number; None: by hash of the key, without a key by the sticky partitioner.
            timestamp_ms: ms since the epoch; None: now.

        Returns: a DeliveryFuture: result(timeout), add_callback(), awaitable.
        Raises: InvalidRecordError, RecordTooLargeError, SerializationError: fix the record. BufferFullError,
            MetadataTimeoutError after max_block_ms. ProducerClosedError, ForkedProducerError. Nothing is queued then.
        Thread safety: any number of threads; records of one thread keep their order per partition.
        """
        future = self._try(topic, value, key, headers, partition, timestamp_ms)
        if future is None:
            return self._send_general(topic, value, key, headers, partition, timestamp_ms)
        return future

    def try_send(self, str topic not None, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """Like send(), but return None instead of waiting for metadata or memory, or if hooks are configured."""
        return self._try(topic, value, key, headers, partition, timestamp_ms)

    cdef TopicQueues _find_topic(self, str name):
        """The topic's queues, remembered for the next record; None if its metadata is not here."""
        cdef TopicQueues topic = self.accumulator.topics.get(name)
        if topic is not None and not FREE_THREADED:
            self._last_name = name
            self._last_topic = topic
            self._last_generation = self.accumulator.topics_generation
        return topic

    cdef object _try(self, str topic, object value, object key, object headers, object partition, object timestamp_ms):
        cdef RecordView r
        cdef int32_t chosen = ANY_PARTITION
        cdef RecordArguments arguments
        cdef TopicQueues queues
        if self.accumulator is None:
            raise IllegalStateError(f"{type(self).__name__}.__init__() has not run: a subclass must call it")
        if self.must_take_general_path or self.accumulator.is_closed:
            return None         # the general path gives the reason
        if (not FREE_THREADED and topic is self._last_name
                and self._last_generation == self.accumulator.topics_generation):
            queues = self._last_topic
        else:
            queues = self._find_topic(topic)
            if queues is None:
                return None
        if partition is not None:
            chosen = <int32_t>to_int64(partition, "partition", 0, INT32_MAX)
            if chosen >= queues.partition_count:
                return None
        r.timestamp = wall_ms() if timestamp_ms is None else to_int64(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        if headers is None and _take(value, &r.value, &r.value_length) and _take(key, &r.key, &r.key_length):
            r.headers = NULL
            r.header_count = 0
            r.headers_size = 1
            return self.accumulator.append_record(queues, chosen, &r, READ_CLOCK, 0)
        arguments = self._spare_arguments
        self._spare_arguments = None            # another thread, or this one again, makes its own meanwhile
        if arguments is None:
            arguments = RecordArguments()
        try:
            return self.accumulator.append_record(
                queues, chosen, arguments.fill(key, value, headers, r.timestamp), READ_CLOCK, 0
            )
        finally:
            arguments.clear()
            if not FREE_THREADED:
                self._spare_arguments = arguments


cdef inline bint _take(object data, const char **pointer, Py_ssize_t *length) noexcept:
    """Point at exact bytes or None; False for anything else."""
    if PyBytes_CheckExact(data):
        pointer[0] = PyBytes_AS_STRING(data)
        length[0] = PyBytes_GET_SIZE(data)
        return True
    pointer[0] = NULL
    length[0] = NULL_LENGTH
    return data is None
