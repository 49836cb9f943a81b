"""Headers that identify the row and the write of each record, so that a reader can skip repeated ones.

A task that is run again, a micro-batch that is replayed after a restart, and a speculative copy send rows that may
already be in the topic. If the rows come in the same order, they carry the same four headers:

    kp.query   the stream's query id, behind the option write.id if it is set;          kp.batch   of the stream, else 0
               of a batch the option or an id of the write                              kp.seq     the row in the task
    kp.part    the task's partition

All are decimal or plain text. Within one (query, batch, part), a record whose seq was seen before is a duplicate.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())]))
COLUMN: Final = "kp.headers"
_NAMES: Final = ("kp.query", "kp.batch", "kp.part", "kp.seq")


class RowIdentity(NamedTuple):
    """The part of the headers that all rows of a task share."""

    query: str
    batch: int
    partition: int


def with_identity(
    batch: pa.RecordBatch, headers: str | None, identity: RowIdentity, first_row: int
) -> tuple[pa.RecordBatch, str]:
    """Return the batch with the four headers appended to those of each row, and the name of that column.

    Args:
        batch: Rows.
        headers: Name of the column of headers; None: no such column.
        identity: The identity of the task.
        first_row: Number of the batch's first row in the task.
    """
    own = None if headers is None else batch.column(headers)
    return batch.append_column(COLUMN, _combine(own, identity, first_row, batch.num_rows)), COLUMN


def _combine(own: pa.Array | None, identity: RowIdentity, first_row: int, rows: int) -> pa.Array:
    constants = pa.array([identity.query, str(identity.batch), str(identity.partition)])
    sequence = pa.array(np.arange(first_row, first_row + rows)).cast(pa.string())
    names = pa.array(_NAMES)
    values = pa.concat_arrays([constants, sequence]).cast(pa.binary())
    counts: Any = np.zeros(rows, dtype=np.int64)
    if own is not None:
        counts = own.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = own.flatten()
        names = pa.concat_arrays([names, pairs.field(0).cast(pa.string())])
        values = pa.concat_arrays([values, pairs.field(1).cast(pa.binary())])
    offsets = np.concatenate([[0], np.cumsum(counts + len(_NAMES))])
    # The places of the four headers of each row; the other places are those of its own headers, in order.
    places = (offsets[1:, None] - len(_NAMES)) + np.arange(len(_NAMES))
    name_of = np.full(offsets[-1], -1, dtype=np.int64)
    value_of = np.full(offsets[-1], -1, dtype=np.int64)
    name_of[places] = np.arange(len(_NAMES))
    value_of[places] = np.array([0, 1, 2, 0])
    value_of[places[:, 3]] = 3 + np.arange(rows)
    is_own = name_of < 0
    name_of[is_own] = len(_NAMES) + np.arange(int(counts.sum()))
    value_of[is_own] = 3 + rows + np.arange(int(counts.sum()))
    items = pa.StructArray.from_arrays(
        [names.take(pa.array(name_of)), values.take(pa.array(value_of))], fields=list(HEADER_TYPE.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items)
