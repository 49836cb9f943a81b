"""Any table, in any layout and chunking, becomes the records that a Python loop over its rows would send."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod._core.queues.blocks import Block
from kafkaprod.tables import TablePlan, read_batches
from tests.support.core.core_engine import Engine, body_of
from tests.support.core.core_model import ModelRecord, decode_produce_body, records_of

NOW_MS = 1_700_000_000_000
PARTITION_COUNT = 4
TOPICS = ("alpha", "beta", "other")

WORDS = st.none() | st.text(max_size=30)
ROWS = st.lists(
    st.tuples(
        WORDS,
        WORDS,
        st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=14)), max_size=3),
        st.none() | st.integers(0, 1 << 41),
        st.integers(0, PARTITION_COUNT - 1),
        st.sampled_from(["alpha", "beta", None]),
    ),
    max_size=40,
)
TEXT_TYPES = st.sampled_from(
    [
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.large_string())),
    ]
)
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADER_TYPES = st.sampled_from(
    [pa.list_(PAIR), pa.large_list(PAIR), pa.list_view(PAIR), pa.map_(pa.string(), pa.binary())]
)
PARTITION_TYPES = st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.int64()])


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()):
        values = [None if value is None else value.encode() for value in values]
    return pa.array(values, kind)


def headers_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_map(kind):
        values = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in values]
    return pa.array(values, kind)


def expected(rows: list[Any]) -> dict[tuple[str, int], list[ModelRecord]]:
    """What a loop of send() would write, by topic and partition."""
    out: dict[tuple[str, int], list[ModelRecord]] = {}
    for key, value, headers, time, partition, topic in rows:
        record = ModelRecord(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            tuple(headers or ()),
            NOW_MS if time is None else time,
        )
        out.setdefault((topic or "other", partition), []).append(record)
    return out


@settings(deadline=None)
@given(ROWS, st.integers(0, 5), st.integers(1, 20), TEXT_TYPES, TEXT_TYPES, HEADER_TYPES, PARTITION_TYPES)
def test_a_table_becomes_the_records_of_a_loop(
    rows: list[Any],
    skipped: int,
    chunk: int,
    key_type: pa.DataType,
    value_type: pa.DataType,
    header_type: pa.DataType,
    partition_type: pa.DataType,
) -> None:
    table = pa.table(
        {
            "key": column([row[0] for row in rows], key_type),
            "value": column([row[1] for row in rows], value_type),
            "headers": headers_column([row[2] for row in rows], header_type),
            "time": pa.array([row[3] for row in rows], pa.timestamp("ms")),
            "partition": pa.array([row[4] for row in rows], partition_type),
            "topic": pa.array([row[5] for row in rows], pa.string()),
        }
    ).slice(skipped)
    plan = TablePlan("other", "value", "key", "headers", "time", "partition", "topic")
    engine = Engine([1] * PARTITION_COUNT, linger_ms=0)
    for topic in TOPICS:
        engine.lead([1] * PARTITION_COUNT, topic)
    seen: list[int] = []
    first = 0
    for batch in read_batches(table.to_reader(max_chunksize=chunk)):
        for part in plan.parts(batch, NOW_MS):
            block = Block(
                engine.accumulator,
                engine.accumulator.topics[part.topic],
                part.value,
                part.key,
                part.headers,
                len(part.rows),
                part.timestamps_ms,
                -1,
                part.partitions,
            )
            assert block.run(engine.now_ms)
            seen += list(part.rows_from(first))
        first += batch.row_count
    assert sorted(seen) == list(range(len(rows[skipped:])))
    written: dict[tuple[str, int], list[ModelRecord]] = {}
    for request in engine.take_all():
        for name, partition, written_batch in decode_produce_body(7, body_of(request)).batches:
            written.setdefault((str(name), partition), []).extend(records_of([written_batch]))
    assert written == expected(rows[skipped:])
