"""kafka-python's KafkaProducer over `kafkaprod.Producer`."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from kafkaprod import Producer
from kafkaprod import errors as ours
from kafkaprod.clock import monotonic_s
from kafkaprod.compat.kafka_python import options
from kafkaprod.compat.kafka_python.errors import BrokerResponseError, IllegalStateError, KafkaTimeoutError, translate
from kafkaprod.compat.kafka_python.partitioner import adapt
from kafkaprod.compat.kafka_python.producer.future import FutureRecordMetadata
from kafkaprod.compat.kafka_python.producer.sender import Sender
from kafkaprod.compat.known_cluster import KnownCluster
from kafkaprod.compat.writes import OnceWrite, Row
from kafkaprod.structs import partition_of_key
from kafkaprod.text import plain_text

_BYTES: Final = (bytes, bytearray, memoryview, type(None))
_CONNECT_RETRY_S: Final = 0.2
logger = logging.getLogger(__name__)


@contextlib.contextmanager
def _theirs() -> Iterator[None]:
    """Raise kafka-python's errors for kafkaprod's."""
    try:
        yield
    except (ours.KafkaError, TimeoutError) as error:
        raise translate(error) from error


class KafkaProducer:
    """Sends records to Kafka, with kafka-python's interface. Thread-safe.

    Args:
        configs: kafka-python's options, of version 3 and 2; docs/from-kafka-python.md has the differences.

    Raises:
        NoBrokersAvailable: No bootstrap server could be used within `bootstrap_timeout_ms` (also:
            `api_version_auto_timeout_ms`); if `api_version` is given, the first record raises it.
        KafkaConfigurationError: An option has a wrong value, or is not offered.
        ValueError: kafka-python has no such option.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = dict(options.DEFAULT_CONFIG)
    DEPRECATED_CONFIGS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **configs: Any) -> None:
        self._is_closed = True  # until there is something to close
        self.config = options.effective(configs)
        self._key_serializer = self.config["key_serializer"]
        self._value_serializer = self.config["value_serializer"]
        self._partitioner = adapt(self.config["partitioner"])
        self._partition_counts: dict[str, int] = {}
        self._has_init_transactions = False
        engine_options = options.engine_options(configs, self.config)
        if self._partitioner is not None:
            engine_options["partitioner"] = self._partitioner
        with _theirs():
            self._producer = Producer(engine_options)
        self._is_closed = False
        try:
            if configs.get("api_version") in (None, "auto"):
                self._connect()
        except BaseException:
            self.close(0)
            raise

    @property
    def _metadata(self) -> KnownCluster:
        """The cluster as it is known now; tracing agents look at its controller."""
        return KnownCluster(self._producer)

    @property
    def _closed(self) -> bool:
        """Whether it was closed; health checks look at it."""
        return self._is_closed

    @property
    def _sender(self) -> Sender:
        """The thread that sends; health checks ask whether it lives."""
        return Sender(self._producer)

    def _wait_on_metadata(self, topic: str, max_wait_ms: float) -> set[int]:
        """Return a topic's partitions. It waits as long as partitions_for(), whatever `max_wait_ms` says."""
        return self.partitions_for(topic)

    def _serialize(self, serializer: Any, topic: str, *given: Any) -> Any:
        """Return bytes of `given`: headers and data, in kafka-python 2 the data alone. Tracing agents call it."""
        headers = given[0] if len(given) > 1 else None
        return _serialized(serializer, topic, headers or [], given[-1], "value")

    def _partition(
        self, topic: str, partition: int | None, key: Any, value: Any, key_bytes: Any, value_bytes: Any
    ) -> int | None:
        """Return where a record goes; None: it has no key, or its topic is not known. Tracing agents call it."""
        everywhere = self._metadata.partitions_for_topic(topic)
        if partition is not None or not everywhere:
            return partition
        if self._partitioner is None:
            return None if key_bytes is None else partition_of_key(bytes(key_bytes), len(everywhere))
        self._partitioner.note(key, value)
        available = sorted(self._metadata.available_partitions_for_topic(topic) or ())
        return self._partitioner.partition(topic, key_bytes, value_bytes, len(everywhere), available)

    def _connect(self) -> None:
        """Wait until the cluster can be reached; raise NoBrokersAvailable after the bootstrap timeout."""
        limit_ms = self.config.get("api_version_auto_timeout_ms") or self.config["bootstrap_timeout_ms"]
        deadline = monotonic_s() + limit_ms / 1000
        while True:
            try:
                with _theirs():
                    return self._producer.check(max(deadline - monotonic_s(), 0.001))
            except Exception as error:
                is_over = monotonic_s() + _CONNECT_RETRY_S >= deadline
                if is_over or not getattr(error, "retriable", False):
                    raise
            time.sleep(_CONNECT_RETRY_S)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue one record; the future has its outcome.

        Args:
            topic: Its name.
            value: Bytes, or what `value_serializer` takes; None only with a key.
            key: Bytes, or what `key_serializer` takes.
            headers: Pairs of text and bytes.
            partition: None: the partitioner chooses.
            timestamp_ms: ms since the epoch; None: now.

        Raises:
            KafkaTimeoutError: No metadata of the topic, or no memory, within max_block_ms.
            MessageSizeTooLargeError: The record exceeds max_request_size.
            TypeError, ValueError: An argument has a wrong type or value.
            IllegalStateError: The producer is closed.
        """
        topic, pairs = self._checked(topic, value, key, headers)
        if self._partitioner is not None:
            self._partitioner.note(key, value)
        key, value = self._both_serialized(topic, pairs, key, value)
        header_size = sum(len(name.encode()) + len(content) for name, content in pairs) if pairs else -1
        try:
            with _theirs():
                if partition is not None:
                    self._check_partition(topic, partition)
                delivery = self._producer.send(topic, value, key, pairs or None, partition, timestamp_ms)
        except BrokerResponseError as error:
            if error.errno == 10:  # too large: nothing was sent
                raise
            return FutureRecordMetadata(None, header_size).failure(error)
        return FutureRecordMetadata(delivery, header_size)

    def _checked(self, topic: Any, value: Any, key: Any, headers: Any) -> tuple[str, list[tuple[str, bytes]]]:
        if self._is_closed:
            raise IllegalStateError("KafkaProducer already closed!")
        if value is None and key is None:
            raise ValueError("Need at least one: key or value")
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        return plain_text(topic), _checked_headers(headers)

    def _both_serialized(self, topic: str, pairs: list[tuple[str, bytes]], key: Any, value: Any) -> tuple[Any, Any]:
        return (
            _serialized(self._key_serializer, topic, pairs, key, "key"),
            _serialized(self._value_serializer, topic, pairs, value, "value"),
        )

    def _check_partition(self, topic: str, partition: int) -> None:
        if partition < 0:
            raise ValueError("partition must be >= 0")
        if partition >= self._partition_counts.get(topic, 0):
            self._partition_counts[topic] = len(self._producer.partitions_for(topic))
            if partition >= self._partition_counts[topic]:
                raise ValueError(f"Unrecognized partition {partition} for topic {topic}")

    def flush(self, timeout: float | None = None) -> None:
        """Send everything queued and wait for the outcomes. Failed records do not raise here: see their futures.

        Args:
            timeout: Seconds; None: as long as it takes.

        Raises:
            KafkaTimeoutError: Not all have their outcome in time; they stay queued.
        """
        if self._is_closed:
            return
        try:
            self._producer.flush(timeout)
        except ours.DeliveryFailedError as error:
            logger.error("records failed whose futures were not read: %s", error)
        except TimeoutError as error:
            raise KafkaTimeoutError(str(error)) from error

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Deliver what is queued and end.

        Args:
            timeout: Seconds; what is not delivered then fails. None: as long as it takes.
            null_logger: Has no effect.

        Raises:
            ValueError: The timeout is negative.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"Invalid timeout: {timeout}")
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(TimeoutError):  # a callback that does not return; kafka-python goes its way, too
            self._producer.close(timeout)
        for serializer in (self._key_serializer, self._value_serializer):
            close = getattr(serializer, "close", None)
            if callable(close):
                close()

    # -- questions -----------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partitions. Raises KafkaTimeoutError after max_block_ms."""
        with _theirs():
            return self._producer.partitions_for(topic)

    def bootstrap_connected(self) -> bool:
        """Whether a broker has answered."""
        return not self._is_closed and (self._producer.bootstrap_connected() or self._can_connect())

    def _can_connect(self) -> bool:
        try:
            self._producer.check(1.0)
        except (ours.KafkaError, TimeoutError):
            return False
        return True

    def metrics(self, raw: bool = False) -> dict[str, dict[str, Any]] | None:
        """Return Kafka's metrics as {group: {name: value}}; None if metrics_enabled is false."""
        if raw:
            raise NotImplementedError(
                "metrics(raw=True) is not offered: use metrics(), or kafkaprod's metric_reporters"
            )
        if not self.config["metrics_enabled"]:
            return None
        return {group: dict(values) for group, values in self._producer.metrics().items()}

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """Return the record format of a broker version."""
        if api_version >= (0, 11):
            return 2
        return 1 if api_version >= (0, 10, 0) else 0

    # -- transactions --------------------------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Get ready for transactions; nothing if that is done. Raises KafkaTimeoutError: call it again."""
        if self._has_init_transactions:
            return
        with _theirs():
            self._producer.init_transactions()
        self._has_init_transactions = True

    def begin_transaction(self) -> None:
        """Open a transaction."""
        with _theirs():
            self._producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Commit offsets of the input together with the transaction.

        Args:
            offsets: TopicPartition -> OffsetAndMetadata.
            group_metadata: KafkaConsumer.group_metadata(), or the group's id.
        """
        with _theirs():
            self._producer.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Deliver everything of the transaction and commit it."""
        with _theirs():
            self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        """Drop or void everything of the transaction."""
        with _theirs():
            self._producer.abort_transaction()

    def write(self, write_id: str, verify: Any = "content", parts: int | bool = False) -> OnceWrite:
        """Return the block of a write that happens once, however often it is run; kafka-python has no such call.

        with producer.write("orders-2026-11-28") as write:
            write.send("orders", b"value", key=b"key")

        Its records have no futures: their outcome is that of the block.

        Args:
            write_id, verify, parts: As for kafkaprod.Producer.transaction().
        """
        if self._is_closed:
            raise IllegalStateError("KafkaProducer already closed!")
        with _theirs():
            block = self._producer.transaction(write_id=write_id, verify=verify, parts=parts)
        return OnceWrite(block, _theirs, self._row)

    def _row(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Row:
        """Return the row of a write for arguments of send()."""
        topic, pairs = self._checked(topic, value, key, headers)
        key_bytes, value_bytes = self._both_serialized(topic, pairs, key, value)
        chosen = partition
        if partition is not None:
            self._check_partition(topic, partition)
        elif self._partitioner is not None:
            self.partitions_for(topic)
            chosen = self._partition(topic, None, key, value, key_bytes, value_bytes)
        return Row(topic, value_bytes, key_bytes, pairs or None, chosen, timestamp_ms, partition)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return (
            f"<KafkaProducer client_id={self.config['client_id']} transactional_id={self.config['transactional_id']}>"
        )


def _checked_headers(headers: Any) -> list[tuple[str, bytes]]:
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise TypeError("headers must be list-type")
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], bytes)):
            raise TypeError("All headers items must be (str, bytes) tuples")
    return headers


def _serialized(serializer: Any, topic: str, headers: list[tuple[str, bytes]], data: Any, what: str) -> Any:
    """Return bytes; whatever a serializer raises comes out as it is."""
    if serializer is not None:
        serialize = getattr(serializer, "serialize", None)
        if serialize is None:
            data = serializer(data)
        else:
            try:
                data = serialize(topic, headers, data)
            except TypeError:
                data = serialize(topic, data)
    if not isinstance(data, _BYTES):
        raise TypeError(f"Unsupported type for serialized {what}: {type(data)}; set {what}_serializer, or encode it")
    return data
