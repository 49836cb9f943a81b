"""The batch reader: every field, every codec, every kind of damage."""

import struct
from typing import Any, cast

import crc32c
import pytest

from kafkaprod._core.records.batch_reader import KEYLESS, MISTIMED, RecordBatchReader, read_batches
from kafkaprod.compression import decompress, make_codec
from kafkaprod.errors import CorruptDataError
from tests.support.core.core_engine import TIMESTAMP
from tests.support.core.core_model import (
    CRC_START,
    HEADER_BYTES,
    ModelRecord,
    encode_batch,
    encode_record,
    varint,
    with_crc,
)

RECORDS = [
    ModelRecord(b"k", b"v"),
    ModelRecord(None, None, (("h", None), ("h", b"")), TIMESTAMP + 5),
    ModelRecord(b"", b"", (("ü", b"x" * 300),), TIMESTAMP - 5),
]


def with_records(payload, count=1):
    """A batch whose records section is these bytes."""
    header = bytearray(encode_batch(RECORDS[:1])[:HEADER_BYTES])
    header[57:61] = struct.pack(">i", count)
    return with_crc(bytes(header) + payload)


def read(batch, **options):
    return [
        ModelRecord(key, value, tuple(headers), timestamp)
        for _, timestamp, key, value, headers in RecordBatchReader(batch, **options).records()
    ]


def test_records_are_read_as_they_were_written():
    assert read(encode_batch(RECORDS)) == RECORDS


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(name):
    codec = make_codec(name)
    assert codec is not None
    plain = b"".join(encode_record(r, r.timestamp - TIMESTAMP, i) for i, r in enumerate(RECORDS))
    batch = encode_batch(RECORDS, attributes=codec.codec_id, payload=codec.compress([plain]))
    assert read(batch, decompress=decompress) == RECORDS
    assert RecordBatchReader(batch).codec_id == codec.codec_id
    with pytest.raises(CorruptDataError, match="no decompressor"):
        RecordBatchReader(batch).records()
    with pytest.raises(CorruptDataError, match="limit"):
        RecordBatchReader(batch, decompress=decompress, limit=10).records()


def test_header_fields_are_all_there():
    batch = bytearray(encode_batch(RECORDS, 4000, 3, 77, attributes=0x10))
    batch[0:8] = struct.pack(">q", 1_000_000)
    batch[12:16] = struct.pack(">i", 9)
    reader = RecordBatchReader(bytes(batch))
    assert (reader.base_offset, reader.last_offset, reader.last_offset_delta) == (1_000_000, 1_000_002, 2)
    assert (reader.leader_epoch, reader.record_count, reader.size_bytes) == (9, 3, len(batch))
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (4000, 3, 77)
    assert (reader.base_timestamp, reader.max_timestamp) == (TIMESTAMP, TIMESTAMP + 5)
    assert (reader.is_transactional, reader.is_control, reader.has_log_append_time) == (True, False, False)
    assert [record.offset for record in reader.records()] == [1_000_000, 1_000_001, 1_000_002]
    assert reader.crc == crc32c.crc32c(bytes(batch[CRC_START:]))


def test_append_time_of_the_log_replaces_every_timestamp():
    assert {record.timestamp for record in read(encode_batch(RECORDS, attributes=0x08))} == {TIMESTAMP + 5}


def test_batch_may_stand_anywhere_in_the_data():
    batch = encode_batch(RECORDS)
    assert RecordBatchReader(b"garbage" + batch + b"more", 7).size_bytes == len(batch)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(wrap):
    assert read(wrap(encode_batch(RECORDS))) == RECORDS


def test_empty_batch_of_a_compacted_log_is_read():
    assert read(with_records(b"", count=0)) == []


# Damage


@pytest.mark.parametrize("position", range(CRC_START, HEADER_BYTES + 5))
def test_any_flipped_bit_under_the_crc_is_found(position):
    batch = bytearray(encode_batch(RECORDS))
    batch[position] ^= 0x04
    with pytest.raises(CorruptDataError, match="CRC"):
        RecordBatchReader(bytes(batch))


def test_crc_check_can_be_left_out():
    batch = bytearray(encode_batch(RECORDS))
    batch[17] ^= 1
    assert read(bytes(batch), check_crc=False) == RECORDS


@pytest.mark.parametrize("size", [0, 1, 12, 60])
def test_cut_header_is_refused(size):
    with pytest.raises(CorruptDataError, match=f"cut: {size} of 61 header bytes"):
        RecordBatchReader(encode_batch(RECORDS)[:size])


def test_cut_batch_is_refused():
    batch = encode_batch(RECORDS)
    with pytest.raises(CorruptDataError, match="bytes follow"):
        RecordBatchReader(batch[:-1])


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31), 2**31 - 1])
def test_impossible_length_is_refused(length):
    batch = bytearray(encode_batch(RECORDS))
    batch[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptDataError, match=f"says {length} bytes follow"):
        RecordBatchReader(bytes(batch))


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_other_magic_is_refused(magic):
    batch = bytearray(encode_batch(RECORDS))
    batch[16] = magic
    with pytest.raises(CorruptDataError, match="magic"):
        RecordBatchReader(bytes(batch))


@pytest.mark.parametrize("position", [-1, 1000])
def test_position_outside_the_data_is_refused(position):
    with pytest.raises(CorruptDataError, match="cut"):
        RecordBatchReader(encode_batch(RECORDS), position)


GOOD = encode_record(RECORDS[0], 0, 0)
DAMAGED = {
    "no record": (b"", 1, "is cut off"),
    "one record too few": (GOOD, 2, "record 1 of 2 is cut off"),
    "one record too many": (GOOD + GOOD, 1, "bytes follow the last of 1 records"),
    "negative record count": (GOOD, -1, "record count -1"),
    "huge record count": (GOOD, 2**31 - 1, "record 1 of 2147483647 is cut off"),
    "length beyond the end": (varint(100) + GOOD[1:], 1, "is cut off"),
    "negative length": (varint(-5) + GOOD[1:], 1, "is cut off"),
    "length of nothing": (varint(0), 1, "does not end where its length says"),
    "length cut": (b"\x80", 1, "is cut off"),
    "length of six bytes": (b"\x80\x80\x80\x80\x80\x01", 1, "is cut off"),
    "one byte too long": (varint(len(GOOD)) + GOOD[1:] + b"\x00", 1, "does not end where its length says"),
    "key beyond the end": (varint(9) + b"\x00\x00\x00" + varint(100) + b"kv" + b"\x00" * 2, 1, "does not end"),
    "key length below null": (varint(7) + b"\x00\x00\x00" + varint(-2) + b"\x00\x00\x00", 1, "does not end"),
    "negative header count": (varint(6) + b"\x00\x00\x00\x01\x01" + varint(-1), 1, "impossible count"),
    "huge header count": (varint(10) + b"\x00\x00\x00\x01\x01" + varint(2**31 - 1), 1, "impossible count"),
    "null header key": (varint(8) + b"\x00\x00\x00\x01\x01" + varint(1) + b"\x01\x01", 1, "impossible count"),
    "header value beyond the end": (varint(8) + b"\x00\x00\x00\x01\x01" + varint(1) + b"\x00\x50", 1, "does not end"),
}


@pytest.mark.parametrize(("payload", "count", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_records_are_named(payload, count, message):
    batch = with_records(payload, count)
    with pytest.raises(CorruptDataError, match=message):
        RecordBatchReader(batch).records()
    with pytest.raises(CorruptDataError, match=message):
        RecordBatchReader(batch).scan()


def test_header_key_that_is_not_utf8_is_refused():
    body = b"\x00\x00\x00\x01\x01" + varint(1) + varint(1) + b"\xff" + varint(-1)
    with pytest.raises(CorruptDataError, match="header 0 of record 0 has a key that is not UTF-8"):
        RecordBatchReader(with_records(varint(len(body)) + body)).records()


@pytest.mark.parametrize("delta", [2**63 - 1, -(2**63)])
def test_timestamps_that_overflow_do_not_raise(delta):
    body = b"\x00" + varint(delta) + b"\x00\x01\x01\x00"
    batch = bytearray(with_records(varint(len(body)) + body))
    for base in (-(2**63), 0, 2**63 - 1):
        batch[27:35] = struct.pack(">q", base)
        batch[0:8] = struct.pack(">q", base)
        reader = RecordBatchReader(with_crc(bytes(batch)))
        (record,) = reader.records()
        assert record.timestamp == (base + delta + 2**63) % 2**64 - 2**63
        reader.scan()
        assert isinstance(reader.last_offset, int)


# Scan


def test_scan_lists_the_records_that_break_a_rule():
    scan = RecordBatchReader(encode_batch(RECORDS)).scan(TIMESTAMP - 1, TIMESTAMP + 1, needs_key=True)
    assert scan == (TIMESTAMP + 5, 1, True, 2, True, ((1, KEYLESS | MISTIMED), (2, MISTIMED)))


def test_scan_of_records_without_timestamps_finds_none_early():
    records = [ModelRecord(b"k", b"v", (), -1)]
    assert RecordBatchReader(encode_batch(records)).scan(5, 10) == (-1, 0, True, 0, False, ())


def test_scan_sees_offsets_that_are_not_consecutive():
    payload = encode_record(RECORDS[0], 0, 0) + encode_record(RECORDS[0], 0, 2)
    assert not RecordBatchReader(with_records(payload, 2)).scan().has_consecutive_offsets


def test_iteration_makes_one_record_at_a_time():
    payload = encode_record(RECORDS[0], 0, 0) * 2 + b"\x03"
    records = iter(RecordBatchReader(with_records(payload, 3)))
    assert [next(records).key, next(records).key] == [RECORDS[0].key] * 2
    with pytest.raises(CorruptDataError, match="record 2 of 3"):
        next(records)


def test_iteration_that_is_over_stays_over():
    records = iter(RecordBatchReader(encode_batch(RECORDS)))
    assert len(list(records)) == len(RECORDS)
    assert list(records) == []


# Several batches


@pytest.mark.parametrize("use", ["iterate", "scan"])
def test_a_decompressed_section_cannot_be_resized_while_it_is_read(use):
    """A decompressor may keep the array that it has returned; if that shrank, the reader would read freed memory."""
    plain = b"".join(encode_record(r, r.timestamp - TIMESTAMP, i) for i, r in enumerate(RECORDS * 50))
    batch = encode_batch(RECORDS * 50, attributes=1, payload=b"packed")
    returned = []

    def decompress_into_array(*_):
        returned.append(bytearray(plain))
        return returned[-1]

    reader = RecordBatchReader(batch, decompress=decompress_into_array)
    if use == "scan":
        assert reader.scan().failing_count == 0
    else:
        records = iter(reader)
        assert next(records).value == b"v"
        with pytest.raises(BufferError, match="re-sized"):
            returned[0].clear()
        assert len(list(records)) == len(RECORDS) * 50 - 1
        del records
    returned[0].clear()  # given back at the end


def test_keys_at_the_ends_of_all_offsets_are_noted():
    """The sums wrap; under the sanitizers a plain one would end the run."""
    for base in (-(2**63), 2**63 - 1):
        batch = bytearray(encode_batch(RECORDS[:1]))
        batch[:8] = struct.pack(">q", base)
        latest: dict[bytes, int] = {}
        assert RecordBatchReader(bytes(batch)).note_keys(latest, 10, -(2**63)) == (base, False)
        assert latest == {b"k": base}
        assert RecordBatchReader(bytes(batch)).note_keys({}, 0, -(2**63))[0] == (base - 1 + 2**63) % 2**64 - 2**63


def test_batches_behind_each_other_are_read_and_a_cut_last_one_is_left_out():
    batches = [encode_batch(RECORDS[: i + 1]) for i in range(3)]
    data = b"".join(batches)
    assert [reader.record_count for reader in read_batches(data)] == [1, 2, 3]
    assert [reader.record_count for reader in read_batches(data[:-1])] == [1, 2]
    assert [reader.record_count for reader in read_batches(data + b"\x00" * 11)] == [1, 2, 3]
    assert read_batches(b"") == []


def test_damage_in_one_of_several_batches_is_raised():
    data = bytearray(encode_batch(RECORDS) * 2)
    data[-1] ^= 1
    with pytest.raises(CorruptDataError, match="CRC"):
        read_batches(bytes(data))


@pytest.mark.parametrize("length", [0, -12, -13, -(2**31)])
def test_length_that_would_loop_forever_is_refused(length):
    data = bytearray(encode_batch(RECORDS) + bytes(100))
    data[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptDataError):
        read_batches(bytes(data))


def test_data_that_is_no_buffer_is_refused():
    with pytest.raises(TypeError):
        RecordBatchReader(cast(Any, "text"))
