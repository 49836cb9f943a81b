"""kafka-python's `kafka.producer.future`: the outcome of one record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from kafkaprod import DeliveryFuture
from kafkaprod.compat.kafka_python.errors import KafkaTimeoutError, translate
from kafkaprod.compat.kafka_python.future import Future
from kafkaprod.errors import copy_to_raise
from kafkaprod.structs import RecordMetadata as OurMetadata
from kafkaprod.structs import TopicPartition


class RecordMetadata(NamedTuple):
    """Where a record is. Sizes are in bytes, -1 for null; `timestamp` is in ms; `checksum` is always None."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class FutureProduceResult(NamedTuple):
    """What kafka-python's future has as `_produce_future`, of which tracing agents read the partition."""

    topic_partition: TopicPartition


class FutureRecordMetadata(Future):
    """The outcome of a record that was sent, or the error that kept it from being queued. Thread-safe.

    Args:
        delivery: The future of the record; None: nothing was queued, and `failure` is called next.
        header_size: Bytes of the headers, -1 without.
    """

    def __init__(self, delivery: DeliveryFuture | None, header_size: int = -1) -> None:
        self._delivery = delivery
        self._header_size = header_size
        if delivery is None:
            super().__init__()

    @property
    def _produce_future(self) -> FutureProduceResult | None:
        """The partition, from when the record was queued; None: it was not queued, or waits for its topic."""
        known = self._delivery
        if known is None or known.partition < 0:
            return None
        return FutureProduceResult(TopicPartition(known.topic, known.partition))

    @property
    def is_done(self) -> bool:
        return self._is_done if self._delivery is None else self._delivery.done()

    @property
    def value(self) -> RecordMetadata | None:
        if self._delivery is None:
            return None
        return self._metadata(self._delivery.result(0)) if self._delivery.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        if self._delivery is None:
            return self._exception
        return translate(_error(self._delivery)) if self._delivery.failed() else None

    @property
    def args(self) -> tuple[Any, ...]:
        """As kafka-python keeps them: index in the batch, timestamp, checksum, sizes of key, value and headers."""
        known = self.value
        if known is None:
            return None, None, None, -1, -1, self._header_size
        return None, known.timestamp, None, *known[6:]

    def _metadata(self, known: OurMetadata) -> RecordMetadata:
        return RecordMetadata(
            known.topic,
            known.partition,
            known.topic_partition,
            known.offset,
            known.timestamp,
            None,
            known.serialized_key_size,
            known.serialized_value_size,
            self._header_size,
        )

    def _watch(self, callback: Callable[[Any], object] | None, errback: Callable[[Any], object] | None) -> Self:
        if self._delivery is None:
            return super()._watch(callback, errback)
        self._delivery.add_done_callback(lambda _: self._run(callback, errback))
        return self

    def success(self, value: Any) -> Self:
        """Refuse: the broker's answer decides."""
        raise TypeError("the outcome of a record comes from the broker and cannot be set")

    def failure(self, e: BaseException | type[BaseException]) -> Self:
        """Set the error of a record that was not queued."""
        return self.success(None) if self._delivery is not None else super().failure(e)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome.

        Args:
            timeout: Seconds; None: as long as it takes.

        Raises:
            KafkaTimeoutError: It is not there in time.
            KafkaError: The record's own error.
        """
        if self._delivery is None:
            assert self._exception is not None
            raise copy_to_raise(self._exception)
        try:
            return self._metadata(self._delivery.result(timeout))
        except TimeoutError as error:
            if not self._delivery.done():
                raise KafkaTimeoutError(f"Timeout after waiting for {timeout} secs.") from error
            raise translate(error) from error
        except Exception as error:
            raise translate(error) from error


def _error(delivery: DeliveryFuture) -> BaseException:
    error = delivery.exception(0)
    assert error is not None
    return error
