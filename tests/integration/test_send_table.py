"""Whole tables into the embedded broker, read back by an independent client and compared with a Python loop."""

from __future__ import annotations

import datetime
import json
import struct
import weakref
from collections.abc import Iterator
from typing import Any

import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafkaprod import AsyncProducer, AvroRows, JsonRows, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import InvalidRecordError, RecordTooLargeError, SerializationError
from kafkaprod.tables import Named
from tests.kafka.reading import ReadRecord, read_all

LIMIT_S = 60
ROWS = 3000
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(ROWS)),
    "name": [None if i % 7 == 3 else f"name {i % 50} \u20ac" * (1 + i % 3) for i in range(ROWS)],
    "payload": [b"payload %d" % i * (i % 5) for i in range(ROWS)],
    "part": [i % 3 for i in range(ROWS)],
    "time": [datetime.datetime(2024, 1, 1) + datetime.timedelta(milliseconds=i) for i in range(ROWS)],
}
EPOCH = datetime.datetime(1970, 1, 1)


def dicts() -> Iterator[dict[str, Any]]:
    """Yield the rows."""
    return (dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True))


SOURCES = {
    "pyarrow table": lambda table: table,
    "pyarrow reader": lambda table: pa.table(table).to_reader(max_chunksize=700),
    "pyarrow dictionary": lambda table: table.set_column(1, "name", table["name"].dictionary_encode()),
    "polars": pl.from_arrow,
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
    "pandas": lambda table: table.to_pandas(),
    "nanoarrow": nanoarrow.ArrayStream,
    "pyarrow dataset": ds.dataset,
    "pyarrow scanner": lambda table: ds.dataset(table).scanner(batch_size=700),
    "iterator of batches": lambda table: iter(table.to_batches(max_chunksize=700)),
    "generator of frames": lambda table: (pl.from_arrow(batch) for batch in table.to_batches(max_chunksize=700)),
    "polars lazy": lambda table: pl.DataFrame(table).lazy(),
    "list of dicts": lambda table: [
        dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)
    ],
    "generator of dicts": lambda table: (
        dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)
    ),
    "lists": lambda table: COLUMNS,
    "numpy": lambda table: {
        name: np.array(values, object if name in ("name", "payload") else None) for name, values in COLUMNS.items()
    },
}


def fetch(broker: EmbeddedBroker, topic: str) -> dict[int, list[ReadRecord]]:
    return dict(read_all(broker.bootstrap_servers, topic))


def in_table_order(broker: EmbeddedBroker, topic: str, result: Any) -> list[ReadRecord]:
    """The records in the order of the table's rows, found by partition and offset."""
    records = fetch(broker, topic)
    assert sum(map(len, records.values())) == len(result)
    return [records[p][o] for p, o in zip(result.partitions.tolist(), result.offsets.tolist(), strict=True)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_of_every_library_arrives_row_by_row(embedded_broker: EmbeddedBroker, source: str) -> None:
    topic = f"table-{source.replace(' ', '-')}"
    data = SOURCES[source](pa.table(COLUMNS))
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        result = producer.send_table(topic, data, value="payload", key="name", timestamp="time", partition="part")
        assert result.result(LIMIT_S) is result
    assert result.error_codes.tolist() == [0] * ROWS
    assert result.partitions.tolist() == COLUMNS["part"]
    for i, record in enumerate(in_table_order(embedded_broker, topic, result)):
        name = COLUMNS["name"][i]
        assert (record.key, record.value) == (None if name is None else name.encode(), COLUMNS["payload"][i])
        assert record.timestamp == (COLUMNS["time"][i] - EPOCH) // datetime.timedelta(milliseconds=1)


def test_rows_arrive_as_json(embedded_broker: EmbeddedBroker) -> None:
    table = pl.DataFrame({name: COLUMNS[name] for name in ("id", "name")})
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        result = producer.send_table("table-json", table, value="json", key="name").result(LIMIT_S)
        chosen = producer.send_table("table-json-id", table, value=JsonRows(columns=["id"])).result(LIMIT_S)
    records = in_table_order(embedded_broker, "table-json", result)
    assert [json.loads(record.value or b"") for record in records] == [
        {name: value for name, value in row.items() if value is not None} for row in table.to_dicts()
    ]
    assert [r.value for r in in_table_order(embedded_broker, "table-json-id", chosen)] == [
        b'{"id":%d}' % i for i in range(ROWS)
    ]


def test_rows_go_to_the_topic_in_their_column(embedded_broker: EmbeddedBroker) -> None:
    topics = ["table-a" if i % 3 else None if i % 2 else "table-b" for i in range(ROWS)]
    headers = pa.array(
        [None if i % 4 == 0 else [("h", b"%d" % i)] * (i % 3) for i in range(ROWS)], pa.map_(pa.string(), pa.binary())
    )
    table = pa.table({"topic": topics, "value": [str(i) for i in range(ROWS)], "h": headers})
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        result = producer.send_table("table-c", table, topic_column="topic", headers="h").result(LIMIT_S)
    records = {topic: fetch(embedded_broker, topic) for topic in ("table-a", "table-b", "table-c")}
    assert set(result.topics) == set(records)
    for i, (partition, offset) in enumerate(zip(result.partitions.tolist(), result.offsets.tolist(), strict=True)):
        record = records[topics[i] or "table-c"][partition][offset]
        assert record.value == b"%d" % i
        assert list(record.headers or []) == ([] if i % 4 == 0 else [("h", b"%d" % i)] * (i % 3))


def test_rows_arrive_as_avro_behind_the_wire_header(embedded_broker: EmbeddedBroker) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
    table = pa.table({"id": [1, -1], "name": ["x", None]})
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        result = producer.send_table("table-avro", table, value=AvroRows(json.dumps(schema), 7)).result(LIMIT_S)
        with pytest.raises(SerializationError, match="row 0 does not fit the Avro schema"):
            producer.send_table("table-avro", {"id": ["x"], "name": ["y"]}, value=AvroRows(schema, 7))
        with pytest.raises(InvalidRecordError, match="the Avro schema is refused"):
            producer.send_table("table-avro", table, value=AvroRows({"type": "nonsense"}, 7))
    header = struct.pack(">bi", 0, 7)
    # Source: Avro 1.12, "Binary encoding": zigzag longs, union index before the value.
    expected = [header + b"\x02\x02\x02x", header + b"\x01\x00"]
    assert [record.value for record in in_table_order(embedded_broker, "table-avro", result)] == expected


async def test_asyncio_sends_a_table_and_awaits_its_result(embedded_broker: EmbeddedBroker) -> None:
    async with AsyncProducer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        result = await (await producer.send_table("table-async", pa.table({"value": ["a", "b"]})))
    assert result.done()
    assert result.failed_count == 0


def test_a_table_larger_than_the_memory_waits_for_it(embedded_broker: EmbeddedBroker) -> None:
    table = pa.table({"value": ["x" * 1000] * 20_000})
    options: dict[str, Any] = {"buffer_memory": 1 << 20, "batch_size": 1 << 16}
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers, **options) as producer:
        result = producer.send_table("table-large", table).result(LIMIT_S)
    assert sum(map(len, fetch(embedded_broker, "table-large").values())) == len(result) == 20_000


def test_what_cannot_be_sent_is_named_and_what_was_queued_is_told(embedded_broker: EmbeddedBroker) -> None:
    called: list[int] = []
    good = pa.record_batch({"value": ["a", "b"]})
    bad = pa.record_batch({"value": ["c", "x" * (1 << 21)]})
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        with pytest.raises(RecordTooLargeError, match=r"row 1: .*rows counted from row 2 of the table") as caught:
            producer.send_table("table-bad", pa.Table.from_batches([good, bad]))
        queued = caught.value.result.result(LIMIT_S)
        assert len(queued) == 2
        queued.add_done_callback(lambda result: called.append(len(result)))
        for arguments, message in (
            ({"value": "nope"}, "value='nope': no such column; the table has 'json', 'value'"),
            ({"value": "json"}, "the table has a column 'json' too"),
            ({"key": 7}, "key must be the name of a column, bytes for every row or None, not 7"),
            ({"columns": ["value"]}, "needs value='json'"),
        ):
            with pytest.raises(InvalidRecordError, match=message):
                producer.send_table("table-bad", {"json": ["{}"], "value": ["v"]}, **arguments)  # type: ignore[arg-type]
        with pytest.raises(InvalidRecordError, match="needs a topic"):
            producer.send_table(None, {"value": ["v"]})
        with pytest.raises(InvalidRecordError, match=r"cannot be converted to Arrow: .*nope"):
            producer.send_table("table-bad", pl.LazyFrame({"value": ["v"]}).select("nope"))
        with pytest.raises(InvalidRecordError, match=r"DuckDBPyConnection holds no rows yet: pass what its \.sql"):
            producer.send_table("table-bad", duckdb.connect())
        producer.send_table("table-bad", {"json": ["{}"]}, value=Named("json"), key=b"k").result(LIMIT_S)
        assert len(producer.send_table("table-bad", pd.DataFrame({"value": pd.Series([], dtype=str)}))) == 0
    assert called == [2]
    assert sorted((r.key, r.value) for rs in fetch(embedded_broker, "table-bad").values() for r in rs if r.key) == [
        (b"k", b"{}")
    ]


def test_rows_and_tables_that_come_one_after_another_are_one_result(embedded_broker: EmbeddedBroker) -> None:
    def tables() -> Iterator[Any]:
        yield pl.DataFrame({"value": ["a", "b"]})
        yield pa.table({"value": ["c"]})
        yield np.array([(b"d", 1)], dtype=[("value", "S1"), ("more", "i4")])

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(25_000):
            yield {"value": f"{number}", **({"part": 1} if number == 24_000 else {})}

    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        assert len(producer.send_table("table-rows", tables()).result(LIMIT_S)) == 4
        assert len(producer.send_table("table-rows", [])) == 0
        assert len(producer.send_table("table-rows", iter([]))) == 0
        rows_of_table = [{"value": "x"}, {"value": None, "key": "k"}]
        assert len(producer.send_table("table-rows", rows_of_table, key="key").result(LIMIT_S)) == 2
        assert len(producer.send_table("table-rows", rows(), partition=0).result(LIMIT_S)) == 25_000
    found = embedded_broker.records("table-rows", at_least=25_006)
    values = [record.value for record in found if record.value not in (None, b"a", b"b", b"c", b"d", b"x")]
    assert values == [b"%d" % number for number in range(25_000)]
    assert [record.value for record in found if record.key == b"k"] == [None]


def test_an_iterator_holds_one_table_at_a_time_and_its_error_has_the_rows_before(
    embedded_broker: EmbeddedBroker,
) -> None:
    seen: list[weakref.ref[Any]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            batch = pa.record_batch({"value": ["v"] * 1000})
            seen.append(weakref.ref(batch))
            yield batch
            del batch
            assert sum(each() is not None for each in seen) <= 1
        raise OSError("the disk is gone")

    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        with pytest.raises(InvalidRecordError, match="tables or rows failed: OSError: the disk is gone") as caught:
            producer.send_table("table-iterator", batches())
        assert len(caught.value.result.result(LIMIT_S)) == 20_000
        for data, message in (
            ([{"value": "v"}, ("v",)], "row 1 must be a mapping, as the first one, not tuple"),
            ([{"value": "v"}, {"value": 1}], "column 'value' holds int, str"),
            ([{1: "v"}], "columns are named by str, not int: 1"),
            (["v"], "data must be an Arrow table"),
            (iter(["v"]), "data must be an Arrow table"),
        ):
            with pytest.raises(InvalidRecordError, match=message):
                producer.send_table("table-iterator", data)


def test_frames_that_do_not_hold_plain_values_are_refused_by_column(embedded_broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        objects = pl.DataFrame({"n": [1], "o": pl.Series([object()], dtype=pl.Object)})
        with pytest.raises(InvalidRecordError, match=r"column 'o' holds Python objects \(polars Object\)"):
            producer.send_table("table-objects", objects, value="json")
        with pytest.raises(InvalidRecordError, match=r"DataFrame cannot be converted to Arrow: .*column o"):
            producer.send_table("table-objects", pd.DataFrame({"o": [1, "a"]}), value="json")


@pytest.mark.parametrize(
    ("name", "expected"), [(None, [{"a": 2}, {"a": 3}]), ("i", [{"a": 2, "i": 1}, {"a": 3, "i": 2}])]
)
def test_the_index_of_pandas_is_a_column_only_if_it_has_a_name(
    embedded_broker: EmbeddedBroker, topic_name: str, name: str | None, expected: list[dict[str, int]]
) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=pd.RangeIndex(3, name=name))
    chosen = frame[frame.a > 1]
    with Producer(bootstrap_servers=embedded_broker.bootstrap_servers) as producer:
        result = producer.send_table(topic_name, chosen, value="json", partition=0).result(LIMIT_S)
    assert repr(result) == f"<TableResult of 2 rows for {topic_name}, done>"
    assert [
        json.loads(record.value or b"") for record in in_table_order(embedded_broker, topic_name, result)
    ] == expected
    assert list(chosen.index) == [1, 2]
