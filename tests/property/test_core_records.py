"""Whatever goes in comes out: records, batches, blocks, splits; and bytes of strangers never do harm."""

from __future__ import annotations

import array
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.records.batch_reader import RecordBatchReader, read_batches
from kafkaprod._core.requests.split import split_batch
from kafkaprod.compression import decompress, make_codec
from kafkaprod.errors import CorruptDataError
from tests.property.strategies import INT64, byte_strings, records
from tests.support.core.column_layouts import as_list, as_offsets, as_views
from tests.support.core.core_engine import TOPIC, Engine, batches_of, only_ref, requeue, succeed
from tests.support.core.core_model import ModelRecord, decode_batch, encode_batch, varint, with_crc
from tests.support.core.core_model import encode_record as model_encode
from tests.support.core.faces import decode_varint, encode_record, encode_varint, size_bound, size_of_varint

CODECS = [None, *map(make_codec, ["gzip", "snappy", "lz4", "zstd"])]
LAYOUTS = [as_list, as_offsets, lambda values: as_offsets(values, "q"), as_views]


def read_back(batch: bytes) -> list[ModelRecord]:
    return [
        ModelRecord(key, value, tuple(headers), timestamp)
        for _, timestamp, key, value, headers in RecordBatchReader(batch, decompress=decompress).records()
    ]


@given(INT64)
def test_varint_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert encoded == varint(value)
    assert len(encoded) == size_of_varint(value)
    assert decode_varint(encoded) == (value, len(encoded))


@given(records(), INT64, st.integers(0, 2**31 - 1))
def test_record_is_as_long_as_computed_and_never_longer_than_its_bound(
    record: ModelRecord, timestamp_delta: int, offset_delta: int
) -> None:
    encoded = encode_record(record.key, record.value, record.headers, timestamp_delta, offset_delta)
    assert encoded == model_encode(record, timestamp_delta, offset_delta)
    assert len(encoded) <= size_bound(record.key, record.value, record.headers)


@given(
    st.lists(records(), min_size=1, max_size=30),
    st.sampled_from(CODECS),
    st.sampled_from([300, 1000, 20_000]),
    st.booleans(),
)
@example([ModelRecord(None, None, (), -1), ModelRecord(None, None, (), 2**63 - 1)], None, 300, False)
def test_appended_records_are_read_back(
    given_records: list[ModelRecord], codec: Any, size: int, numbered: bool
) -> None:
    engine = Engine(batch_size=size, codec=codec, is_idempotent=numbered)
    for record in given_records:
        engine.append_record(record)
    found = []
    while (request := engine.drain.drain(1, engine.now_ms)) is not None:
        for batch in batches_of(request):
            found += read_back(batch)
            if codec is None:
                producer = only_ref(request).producer
                assert batch == encode_batch(decode_batch(batch).records, *producer)
        succeed(request)
    assert [record._replace(timestamp=record.timestamp % 2**64) for record in found] == [
        record._replace(timestamp=record.timestamp % 2**64) for record in given_records
    ]
    assert engine.pool.in_use == 0


@given(
    st.lists(records(200), max_size=40),
    st.integers(1, 5),
    st.sampled_from([300, 2000, 50_000]),
    st.sampled_from(["keys", "partitions", "one"]),
    st.sampled_from(LAYOUTS),
    st.integers(0, 3),
)
def test_three_ways_in_write_the_same_bytes(
    rows: list[ModelRecord], partition_count: int, batch_size: int, placing: str, layout: Any, cut: int
) -> None:
    """append x n == append_many == append_columns."""
    if placing == "keys":
        rows = [row._replace(key=row.key if row.key is not None else b"") for row in rows]
        partitions = [-1] * len(rows)
    elif placing == "partitions":
        partitions = [i * 7 % partition_count for i in range(len(rows))]
    else:
        partitions = [0] * len(rows)

    def contents(engine: Engine) -> list[tuple[int, bytes]]:
        found = []
        for request in engine.take_all():
            found += list(zip([ref.partition for ref in request.refs()], batches_of(request), strict=True))
            succeed(request)
        assert engine.pool.in_use == 0
        return found

    leaders = [1] * partition_count
    singly = Engine(leaders, batch_size=batch_size)
    for row, partition in zip(rows, partitions, strict=True):
        singly.append_record(row, partition)
    blockwise = Engine(leaders, batch_size=batch_size)
    half = len(rows) // 2 if cut else len(rows)
    for part, places in [(rows[:half], partitions[:half]), (rows[half:], partitions[half:])]:
        block = Block(
            blockwise.accumulator,
            blockwise.accumulator.topics[TOPIC],
            layout([row.value for row in part]),
            key=layout([row.key for row in part]),
            headers=_headers(part, as_columns=layout is not as_list),
            timestamps=array.array("q", [row.timestamp for row in part]),
            partitions=array.array("i", places),
        )
        assert block.run(blockwise.now_ms)
    assert contents(blockwise) == contents(singly)


def _headers(rows: list[ModelRecord], as_columns: bool) -> Headers:
    if not as_columns:
        return Headers.from_python([list(row.headers) for row in rows])
    offsets = np.cumsum([0, *[len(row.headers) for row in rows]], dtype=np.int32)
    pairs = [pair for row in rows for pair in row.headers]
    return Headers.from_columns(
        offsets, as_offsets([name.encode() for name, _ in pairs]), as_offsets([value for _, value in pairs])
    )


@given(st.lists(records(400), min_size=2, max_size=30), st.integers(1, 3000), st.booleans())
def test_split_moves_records_without_changing_them(rows: list[ModelRecord], target: int, is_idempotent: bool) -> None:
    engine = Engine(batch_size=1 << 20, is_idempotent=is_idempotent)
    futures = [engine.append_record(row) for row in rows]
    request = engine.take()
    split_batch(only_ref(request), target)
    request.finish()
    found = []
    sequence = 0
    while (drained := engine.drain.drain(1, engine.now_ms)) is not None:
        (batch,) = batches_of(drained)
        decoded = decode_batch(batch)
        assert len(batch) <= target or len(decoded.records) == 1
        if is_idempotent:
            assert decoded.base_sequence == sequence
            sequence += len(decoded.records)
        found += read_back(batch)
        succeed(drained, len(found) - len(decoded.records))
    assert found == [row._replace(timestamp=(row.timestamp + 2**63) % 2**64 - 2**63) for row in rows]
    assert [future.result(0).offset for future in futures] == list(range(len(rows)))
    assert engine.pool.in_use == 0


@given(st.permutations(range(5)), st.integers(1, 5), st.booleans())
def test_order_survives_any_requeue_order(order: list[int], sent_count: int, is_idempotent: bool) -> None:
    engine = Engine(batch_size=1000, is_idempotent=is_idempotent)
    engine.introduce()
    for i in range(6):
        engine.append(bytes([97 + i]) * 900)
    requests = [engine.take() for _ in range(sent_count)]
    for i in order:
        if i < sent_count:
            requeue(requests[i], engine.now_ms, 0)
    values = []
    while (request := engine.drain.drain(1, engine.now_ms)) is not None:
        values += [(record.value or b"")[:1] for batch in batches_of(request) for record in decode_batch(batch).records]
        succeed(request)
    assert b"".join(values) == b"abcdef"


# Bytes of strangers


@settings(max_examples=300)
@given(st.lists(records(50), min_size=1, max_size=4), st.data())
def test_damaged_batches_are_refused_or_read_but_never_do_harm(rows: list[ModelRecord], data: st.DataObject) -> None:
    batch = bytearray(encode_batch([row._replace(timestamp=abs(row.timestamp) % 2**50) for row in rows]))
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(0, len(batch)))
    for candidate in (bytes(batch), with_crc(bytes(batch)), bytes(batch[:size])):
        for check_crc in (True, False):
            try:
                reader = RecordBatchReader(candidate, decompress=decompress, check_crc=check_crc, limit=100_000)
                reader.scan()
                reader.records()
                read_batches(candidate * 2, decompress, check_crc, 100_000)
            except CorruptDataError:
                continue


@given(byte_strings(500), st.sampled_from([1, 2, 3, 4]))
def test_random_bytes_are_no_compressed_records(blob: bytes, codec_id: int) -> None:
    header = bytearray(encode_batch([ModelRecord(b"k", b"v")])[:61])
    header[21:23] = struct.pack(">h", codec_id)
    reader = RecordBatchReader(with_crc(bytes(header) + blob), decompress=decompress, limit=100_000)
    with pytest.raises(CorruptDataError):
        reader.records()


@given(st.binary(max_size=200), st.lists(st.integers(-5, 300), max_size=10))
def test_offsets_of_strangers_are_checked(data: bytes, offsets: list[int]) -> None:
    wanted = offsets and all(0 <= a <= b <= len(data) for a, b in pairwise(offsets))
    try:
        column = Column.from_offsets(np.array(offsets, "i4"), data)
    except ValueError:
        assert not wanted
    else:
        assert wanted
        assert [column[i] for i in range(len(column))] == [data[a:b] for a, b in pairwise(offsets)]


@given(st.binary(max_size=160), st.lists(st.binary(max_size=40), max_size=3))
def test_views_of_strangers_are_checked(views: bytes, buffers: list[bytes]) -> None:
    try:
        column = Column.from_views(views, buffers)
    except ValueError:
        return
    for i in range(len(column)):
        assert column[i] is not None
