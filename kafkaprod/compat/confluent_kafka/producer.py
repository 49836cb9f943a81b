"""confluent-kafka's Producer over `kafkaprod.Producer`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from kafkaprod import Producer as Engine
from kafkaprod import errors as ours
from kafkaprod.clock import monotonic_s
from kafkaprod.compat.confluent_kafka.arguments import check_message, dotted, encoded, limit, pairs
from kafkaprod.compat.confluent_kafka.codes import CODES
from kafkaprod.compat.confluent_kafka.error import KafkaError, KafkaException, kafka_exception, theirs
from kafkaprod.compat.confluent_kafka.metadata import METADATA_S, ClusterMetadata, cluster_metadata
from kafkaprod.compat.confluent_kafka.observers import Observer
from kafkaprod.compat.confluent_kafka.options import read
from kafkaprod.compat.confluent_kafka.reports import FOREVER_S, Delivery, Events, Report
from kafkaprod.compat.confluent_kafka.statistics import PartitionCounts, Statistics
from kafkaprod.compat.writes import OUTCOME_OF_ALL, OnceWrite, Row
from kafkaprod.text import plain_text, printable

PARKED_BYTES: Final = 200  # of objects around a record that waits for its topic
FLUSH_STEP_S: Final = 0.1  # how long flush() leaves callbacks unserved at most
logger = logging.getLogger(__name__)


class Producer:
    """Sends records to Kafka, with confluent-kafka's interface. Thread-safe.

    Callbacks run in poll() and flush(), on the thread that calls them.

    Args:
        conf: librdkafka's options; docs/from-confluent-kafka.md has the differences.
        options: The same by name.

    Raises:
        KafkaException: With _INVALID_ARG: an option is unknown, has a wrong value, or is not offered.
        TypeError: There are no options.
    """

    _is_closed = True  # of a subclass whose constructor does not call this one's
    _events = Events()

    def __init__(self, conf: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        if conf is None and not options:
            raise TypeError("expected configuration dict")
        given = {**(conf or {}), **{dotted(name): value for name, value in options.items()}}
        self._settings = settings = read(given)
        self._events = Events()
        self._partition_counts: dict[str, int] = {}
        self._is_closed = False
        counts = None
        if settings.gives_statistics:
            counts = PartitionCounts()
            settings.engine["interceptors"] = [*(settings.engine.get("interceptors") or ()), counts]
        with theirs():
            self._engine = Engine(settings.engine)
        self._is_transactional = self._engine.config.transactional_id is not None
        statistics = None if counts is None else Statistics(self._engine, settings, self._events, counts)
        self._observer = Observer(self._engine, settings, self._events, statistics)
        for text in settings.ignored:
            logger.warning("%s", printable(text))

    # -- sending -------------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Queue one record.

        Never waits: while the topic's metadata is not known the record is kept, and fails in its callback if it does
        not come within message.timeout.ms.

        Args:
            topic: Its name.
            value, key: Bytes, or text, which is encoded as UTF-8.
            partition: -1: the partitioner chooses.
            callback, on_delivery: Called by poll() with (error or None, Message).
            timestamp: ms since the epoch; 0: now.
            headers: A dict, or a list of pairs; values are bytes, text or None.

        Raises:
            BufferError: queue.buffering.max.messages or .kbytes is reached: call poll(), then try again.
            KafkaException: The record is too large, the partition unknown, or the producer closed.
            TypeError: An argument has a wrong type.
        """
        self._check_room()
        if type(partition) is not int:
            raise TypeError(f"partition must be int, not {type(partition).__name__}")
        report = callback or on_delivery or self._settings.on_delivery
        key_bytes, value_bytes, header_pairs = encoded(key), encoded(value), pairs(headers)
        _check_size(key_bytes, value_bytes, self._engine.config.max_request_size)
        topic = _plain_topic(topic)
        record = (topic, key_bytes, value_bytes, header_pairs)
        delivery = None
        if report is not None:
            delivery = Delivery(self._events, report, record, only_errors=self._settings.reports_only_errors)
        self._events.begin()

        # In a transaction the record must be sent before the transaction ends.
        if not self._is_transactional and self._engine.engine.must_park(topic):
            _park(self, record, partition, timestamp, delivery)
            return
        try:
            self._send(record, partition, timestamp, delivery)
        except BaseException as error:
            self._events.end()
            self._refuse(error, delivery, partition)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")

    def _check_room(self) -> None:
        self._check_open()
        if len(self._events) >= self._settings.max_messages:
            raise BufferError("Local: Queue full")

    def _send(
        self, record: tuple[str, Any, Any, Any], partition: int, timestamp: int, delivery: Delivery | None
    ) -> None:
        """Send a record of a topic that is known."""
        topic, key, value, headers = record
        chosen = self._choose(topic, key, partition)
        future = self._engine.send(topic, value, key, headers, chosen, timestamp or None)
        future.add_done_callback(self._events.end if delivery is None else delivery.settle)

    def _choose(self, topic: str, key: Any, partition: int) -> int | None:
        """Return the partition; None: the engine chooses."""
        choose = self._settings.choose
        if partition < 0:
            return None if choose is None else choose(key, self._partition_count(topic))
        if partition >= self._partition_counts.get(topic, 0):
            self._partition_counts.pop(topic, None)
            if partition >= self._partition_count(topic):
                raise KafkaException(KafkaError(CODES["_UNKNOWN_PARTITION"]))
        return partition

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = len(self._engine.partitions_for(topic))
        return count

    def _refuse(self, error: BaseException, delivery: Delivery | None, partition: int) -> None:
        """Raise what is the caller's to mend; what the cluster refused is reported as a failed record."""
        if isinstance(error, ours.BufferFullError):
            raise BufferError(f"Local: Queue full: {error}") from error
        if isinstance(error, ours.ArgumentTypeError):
            raise TypeError(str(error)) from error
        is_of_cluster = isinstance(error, _OF_CLUSTER) and not isinstance(error, ours.RecordTooLargeError)
        if not is_of_cluster:
            raise kafka_exception(error) if isinstance(error, ours.KafkaError) else error
        self._report(error, delivery, partition)

    def _report(self, error: BaseException, delivery: Delivery | None, partition: int) -> None:
        if delivery is not None:
            delivery.fail(error, partition)
        else:
            logger.error("a record was not sent, and has no callback: %s", error)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
    ) -> int:
        """Queue many records, dicts with value, key, partition, timestamp, headers, callback; return how many.

        One that is refused gets the error as its `_error`.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        topic = _plain_topic(topic)
        for index, message in enumerate(messages):
            check_message(index, message)
        count = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    message.get("callback") or message.get("on_delivery") or callback or on_delivery,
                    None,
                    message.get("timestamp") or 0,
                    message.get("headers"),
                )
            except BufferError:
                message["_error"] = KafkaError(CODES["_QUEUE_FULL"])
            except KafkaException as error:
                message["_error"] = error.args[0]
            else:
                count += 1
        return count

    # -- waiting -------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks.

        Args:
            timeout: Seconds to wait for the first; -1: without limit.

        Returns: How many were served. What a callback raises comes out.
        """
        self._check_open()
        deadline = monotonic_s() + (FOREVER_S / 2 if timeout is None or timeout < 0 else timeout)
        while True:
            if self._observer.has_work:
                self._observer.look()
            remaining_s = deadline - monotonic_s()
            served = self._events.serve(self._observer.patience_s(max(remaining_s, 0)))
            if served or remaining_s <= 0:
                return served

    def flush(self, timeout: float = -1) -> int:
        """Send everything queued, serving callbacks meanwhile.

        Args:
            timeout: Seconds; -1: as long as it takes, which message.timeout.ms bounds.

        Returns: Records and events that are left.
        """
        self._check_open()
        deadline = monotonic_s() + (FOREVER_S / 2 if timeout is None or timeout < 0 else timeout)
        while len(self._events):
            remaining_s = deadline - monotonic_s()
            step_s = max(min(remaining_s, FLUSH_STEP_S), 0)
            self._flush_engine(step_s)
            self._events.serve(0)
            if remaining_s <= 0:
                break
        return len(self._events)

    def _flush_engine(self, timeout_s: float) -> None:
        try:
            self._engine.flush(timeout_s)
        except ours.DeliveryFailedError as error:
            logger.error("records without a callback failed: %s", error)
        except TimeoutError:
            return

    def close(self) -> bool:
        """Abort an open transaction, deliver what is queued, serve the callbacks, and end."""
        if self._is_closed:
            return True
        with contextlib.suppress(ours.IllegalStateError, ours.KafkaError):
            self._engine.abort_transaction()
        self.flush()
        self._is_closed = True
        self._engine.close()
        self._events.serve(0)
        return True

    def __len__(self) -> int:
        """Records without an outcome, and callbacks that were not served."""
        return len(self._events)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- questions -----------------------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return brokers and topics; an unknown topic is not created.

        Args:
            topic: A name; None: all.
            timeout: Seconds; -1: 60.

        Raises:
            KafkaException: No broker can be used, or none answered in time. A refused port is an error at once.
        """
        with theirs():
            return cluster_metadata(self._engine.list_topics(topic, timeout if timeout > 0 else METADATA_S))

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id. Raises KafkaException."""
        with theirs():
            found = self._engine.list_topics([], timeout if timeout > 0 else METADATA_S).cluster_id
        if found is None:
            raise KafkaException(KafkaError(CODES["_UNSUPPORTED_FEATURE"], "the broker has no cluster id"))
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Take a user name and a password for the next logins; without effect where no password is needed, as there."""
        if not isinstance(username, str) or not isinstance(password, str):
            raise TypeError("user name and password must be str")
        if self._engine.config.sasl_plain_password is not None:
            with theirs():
                self._engine.set_sasl_credentials(username, password)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Fail records without an outcome; poll() gives their reports.

        Args:
            in_queue: Those that wait to be sent, with _PURGE_QUEUE.
            in_flight: Those in requests without an answer, with _PURGE_INFLIGHT.
            blocking: Has no effect: it takes no longer than a turn of the sender thread.
        """
        self._check_open()
        with theirs():
            self._engine.purge(in_queue=in_queue, in_flight=in_flight)

    # -- transactions --------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Get ready for transactions. `timeout` in seconds, -1: max_block_ms; the same below."""
        self._check_transactional()
        with theirs():
            self._engine.init_transactions(limit(timeout))

    def begin_transaction(self) -> None:
        """Open a transaction."""
        self._check_transactional()
        with theirs():
            self._engine.begin_transaction()

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1) -> None:
        """Commit offsets of the input together with the transaction."""
        self._check_transactional()
        with theirs():
            self._engine.send_offsets_to_transaction(positions, group_metadata, limit(timeout))

    def commit_transaction(self, timeout: float = -1) -> None:
        """Deliver everything of the transaction and commit it. Callbacks wait for poll()."""
        self._check_transactional()
        with theirs():
            self._engine.commit_transaction(limit(timeout))

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop or void everything of the transaction."""
        self._check_transactional()
        with theirs():
            self._engine.abort_transaction(limit(timeout))

    def write(self, write_id: str, verify: Any = "content", parts: int | bool = False) -> OnceWrite:
        """Return the block of a write that happens once, however often it is run; confluent-kafka has no such call.

        with producer.write("orders-2026-11-28") as write:
            write.produce("orders", b"value", b"key")

        Its records have no callbacks: their outcome is that of the block.

        Args:
            write_id, verify, parts: As for kafkaprod.Producer.transaction().
        """
        self._check_open()
        with theirs():
            block = self._engine.transaction(write_id=write_id, verify=verify, parts=parts)
        return OnceWrite(block, theirs, self._row)

    def _row(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Row:
        """Return the row of a write for arguments of produce()."""
        if callback is not None or on_delivery is not None:
            raise TypeError(OUTCOME_OF_ALL)
        topic, key_bytes = _plain_topic(topic), encoded(key)
        with theirs():
            chosen = self._choose(topic, key_bytes, partition)
        named = partition if partition >= 0 else None
        return Row(topic, encoded(value), key_bytes, pairs(headers), chosen, timestamp or None, named)

    def _check_transactional(self) -> None:
        self._check_open()
        if not self._is_transactional:
            text = "The Transactional API requires transactional.id to be configured"
            raise KafkaException(KafkaError(CODES["_NOT_CONFIGURED"], text))


def _park(
    producer: Producer, record: tuple[str, Any, Any, Any], partition: int, timestamp: int, delivery: Delivery | None
) -> None:
    """Keep a record until its topic is known; the engine counts it, and delivers it at its end, too."""
    topic, key, value, _ = record

    def send() -> bool:
        producer._send(record, partition, timestamp, delivery)
        return True

    def fail(error: BaseException) -> None:
        producer._events.end()
        producer._report(error, delivery, partition)

    try:
        size = PARKED_BYTES + len(key or b"") + len(value or b"")
        producer._engine.engine.sender.parking.add(topic, None, size, send, fail)
    except BaseException as error:
        producer._events.end()
        producer._refuse(error, delivery, partition)


def _check_size(key: Any, value: Any, most: int) -> None:
    if len(key or b"") + len(value or b"") > most:
        text = "Unable to produce message: Broker: Message size too large"
        raise KafkaException(KafkaError(CODES["MSG_SIZE_TOO_LARGE"], text))


def _plain_topic(topic: Any) -> str:
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    return plain_text(topic)


_OF_CLUSTER: Final = (
    ours.MetadataTimeoutError,
    ours.BootstrapError,
    ours.AuthenticationError,
    ours.BrokerError,
    ours.AuthorizationError,
)
