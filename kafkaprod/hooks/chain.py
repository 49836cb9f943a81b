"""The user's code on the line of a record: interceptors, serializers, partitioner, in that order.

It runs on the caller's thread. One object per producer; where nothing is configured `has_any` is False and no record
passes through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from kafkaprod.config import ProducerConfig
from kafkaprod.errors import SerializationError
from kafkaprod.hooks.interceptors import InterceptorChain, ProducerRecord
from kafkaprod.hooks.partitioners import CheckedPartitioner, make_partitioner
from kafkaprod.hooks.serializers import BoundSerializer, BytesLike, bind_serializer
from kafkaprod.results.batch import DeliveryFuture
from kafkaprod.structs import RecordMetadata


class Hooks:
    """What a producer calls for its records.

    Attributes:
        has_any: Whether records must pass through here at all.
    """

    def __init__(
        self,
        key_serializer: BoundSerializer | None = None,
        value_serializer: BoundSerializer | None = None,
        partitioner: CheckedPartitioner | None = None,
        chain: InterceptorChain | None = None,
    ) -> None:
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._chain = chain
        self.has_any = any(hook is not None for hook in (key_serializer, value_serializer, partitioner, chain))

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """The hooks that the options name."""
        return cls(
            bind_serializer(config.key_serializer, "key"),
            bind_serializer(config.value_serializer, "value"),
            make_partitioner(config.partitioner),
            InterceptorChain(config.interceptors) or None,
        )

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the interceptors want it sent."""
        return record if self._chain is None else self._chain.on_send(record)

    def serialize(self, record: ProducerRecord) -> tuple[BytesLike | None, BytesLike | None]:
        """The record's (key, value) as bytes. Raises SerializationError."""
        return (
            _serialized(self._key_serializer, record.topic, record.headers, record.key),
            _serialized(self._value_serializer, record.topic, record.headers, record.value),
        )

    def choose_partition(
        self, record: ProducerRecord, key: BytesLike | None, value: BytesLike | None, leaders: Sequence[int]
    ) -> int | None:
        """The record's own partition, or the user's partitioner's; None: the built-in choice."""
        if record.partition is not None or self._partitioner is None:
            return record.partition
        return self._partitioner.choose(record.topic, key, value, leaders)

    def watch(self, future: DeliveryFuture) -> None:
        """Tell the interceptors the record's outcome when it is known."""
        if self._chain is not None:
            future.add_done_callback(self._acknowledge)

    def on_refused(self, topic: str, partition: int | None, error: Exception) -> None:
        """Tell the interceptors that a record was not even queued."""
        if self._chain is not None:
            self._chain.on_refused(topic, partition, error)

    def serialize_block(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], headers: Any
    ) -> tuple[list[Any] | None, list[Any]]:
        """(keys, values) of a block as bytes. Raises SerializationError naming the row."""
        return (
            None if keys is None else _serialized_rows(self._key_serializer, topic, headers, keys),
            _serialized_rows(self._value_serializer, topic, headers, values),
        )

    def choose_partitions(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], leaders: Sequence[int]
    ) -> Any:
        """The user's partitioner's choice for a block, as int32 array; None: the built-in choice."""
        return None if self._partitioner is None else self._partitioner.choose_many(topic, keys, values, leaders)

    def _acknowledge(self, future: DeliveryFuture) -> None:
        assert self._chain is not None
        error = future.exception(0)
        if error is None:
            self._chain.on_acknowledgement(future.result(0), None)
        else:
            self._chain.on_acknowledgement(RecordMetadata(future.topic, future.partition, -1, -1), error)


def _serialized(serializer: BoundSerializer | None, topic: str, headers: Any, data: Any) -> Any:
    return data if serializer is None else serializer(topic, headers, data)


def _serialized_rows(serializer: BoundSerializer | None, topic: str, headers: Any, rows: Iterable[Any]) -> list[Any]:
    if serializer is None:
        return list(rows)
    out: list[Any] = []
    try:
        out.extend(serializer(topic, headers, data) for data in rows)
    except SerializationError as error:
        raise SerializationError(f"row {len(out)}: {error}", topic=topic) from error
    return out
