"""The user's code on the line of a record: interceptors, serializers, partitioner, in that order.

It runs on the caller's thread. One object per producer; where nothing is configured `has_any` is False and no record
passes through here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self, overload

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod._core.queues.record_hooks import RecordHooks, SerializerCall, headers_list
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import InvalidRecordError
from kafkaprod.hooks.interceptors import InterceptorChain, ProducerRecord, RecordBlock
from kafkaprod.hooks.partitioners import CheckedPartitioner, make_partitioner
from kafkaprod.hooks.serializers import bind_serializer
from kafkaprod.structs import BytesLike

_ROWS_AT_ONCE: Final = 1024  # of a column, made into objects for the user's code


class Hooks(RecordHooks):
    """What a producer calls for its records."""

    __slots__ = ()

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
        if self.chain is not None:
            record = self.chain.on_send(record)
        return record._replace(headers=headers_list(record.headers)) if self.takes_headers else record

    def serialize(self, record: ProducerRecord) -> tuple[BytesLike | None, BytesLike | None]:
        """Return the record's (key, value) as bytes. Raises SerializationError."""
        return (
            _serialized(self.key_serializer, record.topic, record.headers, record.key),
            _serialized(self.value_serializer, record.topic, record.headers, record.value),
        )

    def choose_partition(
        self, record: ProducerRecord, key: BytesLike | None, value: BytesLike | None, leaders: Sequence[int]
    ) -> int | None:
        """Return the record's own partition, or the partitioner's choice; None: the built-in choice."""
        if record.partition is not None or self.partitioner is None:
            return record.partition
        return self.partitioner.choose(record.topic, key, value, leaders)

    def watch(self, future: DeliveryFuture) -> None:
        """Pass the record's outcome to the interceptors when it is known."""
        if self.chain is not None:
            self.chain.watch_outcome(future)

    def on_refused(self, topic: str, partition: int | None, error: Exception) -> None:
        """Pass a record that was not even queued to the interceptors."""
        if self.chain is not None:
            self.chain.on_refused(topic, partition, error)

    def on_block(self, topic: str, record_count: int) -> RecordBlock | None:
        """Show a block to the interceptors; None if none of them sees blocks."""
        chain = self.chain
        if not isinstance(chain, InterceptorChain) or not chain.sees_blocks:
            return None
        block = RecordBlock(topic, record_count)
        chain.on_block(block)
        return block

    def on_block_end(self, block: RecordBlock, failed_count: int, error: BaseException | None) -> None:
        """Pass a block's end to the interceptors."""
        if isinstance(self.chain, InterceptorChain):
            self.chain.on_block_acknowledgement(block, failed_count, error)

    def serialize_block(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any], headers: Any
    ) -> tuple[list[Any] | None, list[Any], Any]:
        """Return (keys, values, headers) of a block, the first two as bytes.

        Serializers that take headers see those of their own row, in a list that they may append to.
        Raises SerializationError naming the row, InvalidRecordError for another number of headers than values.
        """
        rows: list[Any] | None = None
        if self.takes_headers:
            rows = headers = _headers_by_row(headers, len(values))
        return (
            None if keys is None else _serialized_rows(self.key_serializer, topic, rows, keys),
            _serialized_rows(self.value_serializer, topic, rows, values),
            headers,
        )

    def choose_partitions(
        self, topic: str, key: Column | None, value: Column, row_count: int, partitions: Any, leaders: Sequence[int]
    ) -> Any:
        """Return the partitions of a block: those given, and the partitioner's choice where there is none.

        Args:
            topic: The topic of the records.
            key: Serialized; None: no record has one.
            value: Serialized.
            row_count: How many they are.
            partitions: Integers, -1 where the partitioner chooses; None: everywhere.
            leaders: The leaders of all partitions, -1 where there is none.

        Raises: InvalidRecordError: The partitioner raised or named no partition of the topic.
        """
        partitioner = self.partitioner
        if not isinstance(partitioner, CheckedPartitioner):  # there is none
            return partitions
        import numpy as np  # late: only blocks of records need it

        given = None if partitions is None else np.asarray(partitions)
        if given is not None and (
            given.dtype.kind not in "iu" or given.shape != (row_count,) or not (given == -1).any()
        ):
            return partitions
        keys = None if key is None else ColumnRows(key, row_count)
        chosen = partitioner.choose_many(topic, keys, ColumnRows(value, row_count), leaders)
        return chosen if given is None else np.where(given == -1, chosen, given)


def _serialized(serializer: SerializerCall | None, topic: str, headers: Any, data: Any) -> Any:
    return data if serializer is None else serializer(topic, headers, data)


def _headers_by_row(headers: Any, row_count: int) -> list[Any]:
    """Return the headers of a block as a list per row, from pairs for every row alike or a list of pairs per row."""
    if headers is None:
        return [[] for _ in range(row_count)]
    rows = headers_list(headers)
    if not isinstance(rows, list):
        raise InvalidRecordError(
            f"headers must be pairs (str, bytes) or a list of them per row, not {type(rows).__name__}"
        )
    if not rows or isinstance(rows[0], tuple):
        return [list(rows) for _ in range(row_count)]
    if len(rows) != row_count:
        raise InvalidRecordError(f"headers has {len(rows)} rows, values {row_count}")
    return [headers_list(row) for row in rows]


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

    def __iter__(self) -> Iterator[bytes | None]:
        for first in range(0, self._row_count, _ROWS_AT_ONCE):
            yield from self._column.rows(first, min(_ROWS_AT_ONCE, self._row_count - first))


def _serialized_rows(
    serializer: SerializerCall | None, topic: str, headers: list[Any] | None, rows: Sequence[Any]
) -> list[Any]:
    return list(rows) if serializer is None else serializer.rows(topic, headers, list(rows))
