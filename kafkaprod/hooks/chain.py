"""The user's code on the line of a record: interceptors, serializers, partitioner, in that order.

It runs on the caller's thread. One object per producer; where nothing is configured `has_any` is False and no record
passes through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, overload

from kafkaprod._core.columns.columns import Column
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import InvalidRecordError, SerializationError
from kafkaprod.hooks.interceptors import InterceptorChain, ProducerRecord
from kafkaprod.hooks.partitioners import CheckedPartitioner, make_partitioner
from kafkaprod.hooks.serializers import BoundSerializer, BytesLike, bind_serializer
from kafkaprod.results.batch import DeliveryFuture
from kafkaprod.structs import RecordMetadata


class Hooks:
    """What a producer calls for its records.

    Attributes:
        has_any: Whether records must pass through here at all.
        has_partitioner: Whether a partitioner is configured.
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
        self._takes_headers = any(
            serializer is not None and serializer.takes_headers for serializer in (key_serializer, value_serializer)
        )
        self.has_partitioner = partitioner is not None
        self.has_any = any(hook is not None for hook in (key_serializer, value_serializer, partitioner, chain))

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """Make the hooks that the options name."""
        return cls(
            bind_serializer(config.key_serializer, "key"),
            bind_serializer(config.value_serializer, "value"),
            make_partitioner(config.partitioner),
            InterceptorChain(config.interceptors) or None,
        )

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record as the interceptors want it sent; its headers are a list that serializers may append to."""
        if self._chain is not None:
            record = self._chain.on_send(record)
        return record._replace(headers=_own_list(record.headers)) if self._takes_headers else record

    def serialize(self, record: ProducerRecord) -> tuple[BytesLike | None, BytesLike | None]:
        """Return the record's (key, value) as bytes. Raises SerializationError."""
        return (
            _serialized(self._key_serializer, record.topic, record.headers, record.key),
            _serialized(self._value_serializer, record.topic, record.headers, record.value),
        )

    def choose_partition(
        self, record: ProducerRecord, key: BytesLike | None, value: BytesLike | None, leaders: Sequence[int]
    ) -> int | None:
        """Return the record's own partition, or the partitioner's choice; None: the built-in choice."""
        if record.partition is not None or self._partitioner is None:
            return record.partition
        return self._partitioner.choose(record.topic, key, value, leaders)

    def watch(self, future: DeliveryFuture) -> None:
        """Pass the record's outcome to the interceptors when it is known."""
        if self._chain is not None:
            future.add_done_callback(self._acknowledge)

    def on_refused(self, topic: str, partition: int | None, error: Exception) -> None:
        """Pass a record that was not even queued to the interceptors."""
        if self._chain is not None:
            self._chain.on_refused(topic, partition, error)

    def serialize_block(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], headers: Any
    ) -> tuple[list[Any] | None, list[Any], Any]:
        """Return (keys, values, headers) of a block, the first two as bytes.

        Serializers that take headers see those of their own row, in a list that they may append to.
        Raises SerializationError naming the row, InvalidRecordError for another number of headers than values.
        """
        rows: Sequence[Any] = [None] * len(values)
        if self._takes_headers:
            rows = headers = _headers_by_row(headers, len(values))
        return (
            None if keys is None else _serialized_rows(self._key_serializer, topic, rows, keys),
            _serialized_rows(self._value_serializer, topic, rows, values),
            headers,
        )

    def choose_partitions(
        self, topic: str, key: Column | None, value: Column, row_count: int, partitions: Any, leaders: Sequence[int]
    ) -> Any:
        """Return the partitions of a block: those given, and the partitioner's choice where there is none.

        Args:
            topic: Of the records.
            key: Serialized; None: no record has one.
            value: Serialized.
            row_count: How many they are.
            partitions: Integers, -1 where the partitioner is to choose; None: everywhere.
            leaders: Of all partitions, -1 where there is none.

        Raises: InvalidRecordError: The partitioner raised or named no partition of the topic.
        """
        if self._partitioner is None:
            return partitions
        import numpy as np  # late: only blocks of records need it

        given = None if partitions is None else np.asarray(partitions)
        if given is not None and (
            given.dtype.kind not in "iu" or given.shape != (row_count,) or not (given == -1).any()
        ):
            return partitions
        keys = None if key is None else ColumnRows(key, row_count)
        chosen = self._partitioner.choose_many(topic, keys, ColumnRows(value, row_count), leaders)
        return chosen if given is None else np.where(given == -1, chosen, given)

    def _acknowledge(self, future: DeliveryFuture) -> None:
        assert self._chain is not None
        error = future.peek_error()  # exception() would count as a look, and flush() keep silent about the failure
        if error is None:
            self._chain.on_acknowledgement(future.result(0), None)
        else:
            self._chain.on_acknowledgement(RecordMetadata(future.topic, future.partition, -1, -1), error)


def _serialized(serializer: BoundSerializer | None, topic: str, headers: Any, data: Any) -> Any:
    return data if serializer is None else serializer(topic, headers, data)


def _own_list(headers: Any) -> Any:
    """Return a record's headers as a list of its own; what is no sequence of pairs is left for the core to refuse."""
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        return list(headers.items())
    return list(headers) if isinstance(headers, Iterable) else headers


def _headers_by_row(headers: Any, row_count: int) -> list[Any]:
    """Return the headers of a block as a list per row, from pairs for every row alike or a list of pairs per row."""
    if headers is None:
        return [[] for _ in range(row_count)]
    rows = _own_list(headers)
    if not isinstance(rows, list):
        raise InvalidRecordError(
            f"headers must be pairs (str, bytes) or a list of them per row, not {type(rows).__name__}"
        )
    if not rows or isinstance(rows[0], tuple):
        return [list(rows) for _ in range(row_count)]
    if len(rows) != row_count:
        raise InvalidRecordError(f"headers has {len(rows)} rows, values {row_count}")
    return [_own_list(row) for row in rows]


class ColumnRows(Sequence[bytes | None]):
    """The rows of a column as a sequence of bytes; each is made when it is looked at."""

    def __init__(self, column: Column, row_count: int) -> None:
        self._column = column
        self._row_count = row_count

    def __len__(self) -> int:
        return self._row_count

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> list[bytes | None]: ...
    def __getitem__(self, row: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(row, slice):
            return [self._column[i] for i in range(*row.indices(self._row_count))]
        if not -self._row_count <= row < self._row_count:
            raise IndexError(f"row {row} is outside of {self._row_count}")
        return self._column[row % self._row_count]


def _serialized_rows(
    serializer: BoundSerializer | None, topic: str, headers: Sequence[Any], rows: Sequence[Any]
) -> list[Any]:
    if serializer is None:
        return list(rows)
    out: list[Any] = []
    try:
        for data, of_row in zip(rows, headers, strict=False):
            out.append(serializer(topic, of_row, data))
    except SerializationError as error:
        raise SerializationError(f"row {len(out)}: {error}", topic=topic) from error
    return out
