"""Pass Spark's record batches to the producer: columns as they are in memory, without an object per row.

Spark's layouts: 32-bit offsets, or 64-bit with useLargeVarTypes; a validity bitmap only if there are nulls; buffers of
exact length, aligned to 8 bytes only; lists always with 32-bit offsets; never slices, dictionaries or views.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafkaprod.errors import InvalidRecordError
from kafkaprod.producer import Producer
from kafkaprod.results.block import BlockResult
from kafkaprod.spark.plan import WritePlan


class SentRows(NamedTuple):
    """Rows of one topic that were queued.

    Attributes:
        topic: Its name.
        first_row: Number of the batch's first row in the task.
        rows: Positions in the batch.
        result: Outcome of the rows.
        size: Bytes of Spark's memory that they may keep alive.
    """

    topic: str
    first_row: int
    rows: Any
    result: BlockResult
    size: int


def send_batch(
    producer: Producer, plan: WritePlan, batch: pa.RecordBatch, headers: str | None, first_row: int
) -> list[SentRows]:
    """Queue the rows of a batch; those of a topic keep their order.

    Args:
        producer: Waits for memory if its buffer is full.
        plan: Maps the columns.
        batch: As Spark passes it.
        headers: Name of the column of headers; None: no such column.
        first_row: The number of its first row in the task.

    Raises: What `Producer.send_table` does; InvalidRecordError for a null topic.
    """
    if plan.topic >= 0:
        _refuse_null_topics(batch.column(plan.topic))
    result = producer.send_table(
        None if plan.topic >= 0 else plan.options.topic,
        batch,
        value="value" if plan.rows is None else plan.rows,
        key="key" if plan.key >= 0 else None,
        headers=headers,
        timestamp="timestamp" if plan.timestamp >= 0 else None,
        partition="partition" if plan.partition >= 0 else None,
        topic_column="topic" if plan.topic >= 0 else None,
    )
    # The batch's memory is counted with its last part.
    return [
        SentRows(topic, first_row, rows, block, batch.get_total_buffer_size() if i == len(result.blocks) - 1 else 0)
        for i, (rows, topic, block) in enumerate(result.blocks)
    ]


def _refuse_null_topics(topics: pa.Array) -> None:
    if topics.null_count:
        row = int(np.flatnonzero(topics.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidRecordError(
            f"null topic present in the data. Use the topic option for setting a default topic. It is row {row}"
        )
