"""From Spark's record batches to the producer: columns are passed on as they lie in memory, no object per row.

Spark's layouts: 32-bit offsets, or 64-bit with useLargeVarTypes; a validity bitmap only if there are nulls; buffers of
exact length, aligned to 8 bytes only; lists always with 32-bit offsets; never slices, dictionaries or views.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkaprod._core.columns import Column, Headers
from kafkaprod.completion import BlockResult
from kafkaprod.errors import InvalidRecordError
from kafkaprod.producer import Producer
from kafkaprod.spark.plan import WritePlan

_MICROSECONDS_PER_MS: Final = 1000
_LARGE: Final = (pa.large_binary(), pa.large_string())


class SentRows:
    """Rows of one topic that the producer took.

    Attributes:
        topic: Where to.
        rows: Their numbers in the task, or a range of them.
        result: Their outcome.
        size: Bytes of keys and values.
    """

    __slots__ = ("result", "rows", "size", "topic")

    def __init__(self, topic: str, rows: Any, result: BlockResult, size: int) -> None:
        self.topic = topic
        self.rows = rows
        self.result = result
        self.size = size


def send_batch(
    producer: Producer, plan: WritePlan, batch: pa.RecordBatch, headers: int, first_row: int
) -> Iterator[SentRows]:
    """Queue the rows of a batch, topic by topic; rows of a topic keep their order.

    Args:
        producer: Takes them; waits for memory.
        plan: What the columns are.
        batch: Of Spark.
        headers: Position of the column of headers, -1: there is none.
        first_row: The number of its first row in the task.

    Raises: What `Producer.send_columns` does; InvalidRecordError for a null topic. Rows yielded before are queued.
    """
    if plan.topic < 0:
        assert plan.options.topic is not None
        rows = range(first_row, first_row + batch.num_rows)
        yield _send(producer, plan, batch, headers, plan.options.topic, rows)
        return
    column = batch.column(plan.topic)
    if column.null_count:
        row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidRecordError(
            "null topic present in the data. Use the topic option for setting a default topic. "
            f"It is row {row} of the task"
        )
    topics = pc.dictionary_encode(column)
    numbers = topics.indices.to_numpy()
    for number, topic in enumerate(topics.dictionary.to_pylist()):
        chosen = np.flatnonzero(numbers == number)
        part = batch if len(chosen) == batch.num_rows else batch.take(pa.array(chosen))
        yield _send(producer, plan, part, headers, topic, chosen + first_row)


def _send(producer: Producer, plan: WritePlan, batch: pa.RecordBatch, headers: int, topic: str, rows: Any) -> SentRows:
    value = batch.column(plan.value)
    key = batch.column(plan.key) if plan.key >= 0 else None
    result = producer.send_columns(
        topic,
        _bytes_column(value, "value"),
        None if key is None else _bytes_column(key, "key"),
        _headers(batch.column(headers)) if headers >= 0 else None,
        _timestamps_ms(batch.column(plan.timestamp)) if plan.timestamp >= 0 else None,
        _partitions(batch.column(plan.partition)) if plan.partition >= 0 else None,
    )
    return SentRows(topic, rows, result, _size(value) + (0 if key is None else _size(key)))


def _bytes_column(array: pa.Array, name: str) -> Column:
    validity, offsets, data = array.buffers()
    return Column.from_offsets(
        _offsets(array, offsets),
        data if data is not None else b"",
        validity,
        array.offset,
        len(array),
        name,
    )


def _offsets(array: pa.Array, buffer: pa.Buffer) -> memoryview:
    return memoryview(buffer).cast("B").cast("q" if array.type in _LARGE else "i")


def _headers(array: pa.ListArray) -> Headers:
    if array.offset or array.null_count:  # a null list is an empty one; its offsets may say otherwise
        array = pc.if_else(array.is_valid(), array, pa.scalar([], array.type))
    pairs = array.values
    keys, values = (pairs.field(i) for i in range(2))
    return Headers.from_columns(
        memoryview(array.offsets.buffers()[1]).cast("B").cast("i")[: len(array) + 1],
        _bytes_column(keys, "headers.key"),
        _bytes_column(values, "headers.value"),
        len(array),
    )


def _timestamps_ms(array: pa.Array) -> Any:
    microseconds = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    now_us = time.time_ns() // 1000
    return microseconds.fill_null(now_us).to_numpy() // _MICROSECONDS_PER_MS


def _partitions(array: pa.Array) -> Any:
    if array.null_count:
        array = array.fill_null(-1)
    return array.to_numpy()


def _size(array: pa.Array) -> int:
    offsets = _offsets(array, array.buffers()[1])
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
