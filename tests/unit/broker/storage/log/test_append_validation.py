"""The checks of a produced batch: Kafka's order, codes and listed records."""

from __future__ import annotations

import struct
import time
import tracemalloc
from dataclasses import replace
from itertools import product

import pytest
from crc32c import crc32c

from kafkaprod._core.records.batch_reader import MAX_FAILING
from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.records import iterate_records, open_batch
from kafkaprod.broker.storage.log.append_validation import validate_client_batch
from kafkaprod.compression import CODEC_NAMES, make_codec
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.batch_header import parse_header
from tests.support.broker import python_records
from tests.support.broker.fixtures_log import NOW_MS, encode_record, make_batch

COMPACTED = LogConfig(cleanup_policy="compact")


def patched(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """The batch with one header field changed and the CRC made right again."""
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def refusal(batch: bytearray, config: LogConfig) -> tuple[int, list[int]] | None:
    copy = bytes(batch)
    try:
        validate_client_batch(memoryview(batch), config, NOW_MS)
    except RecordsRefusedError as error:
        assert bytes(batch) == copy  # a refused batch is not changed
        return error.code, [failing.batch_index for failing in error.record_errors]
    return None


def cases() -> list[tuple[str, bytearray, LogConfig, tuple[int, list[int]] | None]]:
    plain = LogConfig()
    record = encode_record(b"v", 0)
    flipped = make_batch()
    flipped[-1] ^= 1
    ancient = [NOW_MS, NOW_MS - 5_000, NOW_MS]
    early = replace(plain, message_timestamp_before_max_ms=1000)
    both_faults = {"timestamps": [NOW_MS, NOW_MS - 5_000], "keys": [None, b"k"]}
    return [
        ("good", make_batch(), plain, None),
        ("two batches", make_batch() + make_batch(), plain, (87, [])),
        ("half a batch", make_batch()[:-1], plain, (87, [])),
        ("no batch", bytearray(), plain, (87, [])),
        ("old magic", patched(make_batch(), 16, ">b", 1), plain, (87, [])),
        ("length below the header", patched(make_batch(), 8, ">i", 48), plain, (2, [])),
        ("negative length", patched(make_batch(), 8, ">i", -1), plain, (2, [])),
        ("base offset set", make_batch(base_offset=1), plain, (87, [])),
        ("size before checksum", flipped + bytes(0), replace(plain, max_message_bytes=69), (10, [])),
        ("bad checksum", flipped, plain, (2, [])),
        ("largest legal size", make_batch(), replace(plain, max_message_bytes=70), None),
        ("no records", make_batch([]), plain, (87, [])),
        ("delta without record", patched(make_batch(), 23, ">i", 1), plain, (87, [])),
        ("negative count", patched(make_batch(), 57, ">i", -1), plain, (87, [])),
        ("control batch", make_batch(attributes=0x20), plain, (87, [])),
        ("producer without sequence", make_batch(producer_id=1, epoch=0), plain, (87, [])),
        ("unknown codec", make_batch(attributes=5), plain, (87, [])),
        ("codec of plain data", make_batch(attributes=4), plain, (87, [])),
        ("trailing byte", make_batch(section=record + b"\0"), plain, (87, [])),
        ("record cut short", make_batch(section=record[:-1]), plain, (87, [])),
        ("record of negative length", make_batch(section=b"\x01" + record[1:]), plain, (87, [])),
        ("one record of two", make_batch([b"a", b"b"], section=record), plain, (87, [])),
        ("key in a compacted topic", make_batch(), COMPACTED, None),
        ("keyless in a compacted topic", make_batch([b"a"] * 3, keys=[b"k", None, None]), COMPACTED, (87, [1, 2])),
        ("keyless elsewhere", make_batch(keys=[None]), plain, None),
        ("too old", make_batch([b"a"] * 3, timestamps=ancient), early, (32, [1])),
        ("oldest allowed", make_batch(timestamps=[NOW_MS - 1000]), early, None),
        ("too new", make_batch(timestamps=[NOW_MS + 3_600_001]), plain, (32, [0])),
        ("newest allowed", make_batch(timestamps=[NOW_MS + 3_600_000]), plain, None),
        ("no timestamp", make_batch(timestamps=[-1]), early, None),
        ("claims append time", make_batch([b"a", b"b"], attributes=8), plain, (32, [0, 1])),
        (
            "append time topic takes any",
            make_batch(timestamps=[5], attributes=8),
            replace(early, message_timestamp_type="LogAppendTime"),
            None,
        ),
        (
            "time decides over key",
            make_batch([b"a"] * 2, **both_faults),  # type: ignore[arg-type]
            replace(early, cleanup_policy="compact"),
            (32, [0, 1]),
        ),
        ("larger than a segment", make_batch([b"v" * 100]), replace(plain, segment_bytes=150), (18, [])),
        ("gaps in a compressed batch", gapped(codec=1), plain, (87, [])),
        ("gaps in a plain batch", gapped(codec=0), plain, None),
    ]


def gapped(codec: int) -> bytearray:
    section = encode_record(b"a", 0) + encode_record(b"b", 5)
    chosen = make_codec(CODEC_NAMES[codec])
    return make_batch([b"a", b"b"], codec=codec, section=chosen.compress([section]) if chosen else section)


@pytest.mark.parametrize(("name", "batch", "config", "expected"), cases(), ids=[case[0] for case in cases()])
def test_batch_gets_kafkas_verdict(
    name: str,
    batch: bytearray,
    config: LogConfig,
    expected: tuple[int, list[int]] | None,
) -> None:
    assert refusal(bytearray(batch), config) == expected


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batch_is_stored_in_the_codec_the_topic_asks_for(codec: int, wanted: str) -> None:
    batch = make_batch([b"a" * 50, None], codec=codec, producer_id=3, epoch=1, sequence=9)
    records = list(iterate_records(batch))
    valid = validate_client_batch(memoryview(batch), LogConfig(compression_type=wanted), NOW_MS)
    header = parse_header(valid.data)
    assert header == valid.header._replace(crc=header.crc)
    assert header.codec == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(wanted)
    assert (header.producer_id, header.base_sequence, header.record_count) == (3, 9, 2)
    assert list(iterate_records(valid.data)) == records
    assert refusal(bytearray(valid.data), LogConfig()) is None  # its CRC is right


@pytest.mark.parametrize("codec", range(5))
def test_compiled_reader_reports_what_the_plain_one_does(codec: int) -> None:
    for attributes in (0, 8):
        batch = memoryview(
            make_batch(
                [b"a", None, b""],
                codec=codec,
                attributes=attributes,
                timestamps=[NOW_MS, NOW_MS - 50, NOW_MS + 9],
                keys=[None, b"k", None],
            )
        )
        header = parse_header(batch)
        for rules in product((NOW_MS - 60, NOW_MS - 10), (NOW_MS, NOW_MS + 10), (False, True), (False, True)):
            assert open_batch(batch).scan(*rules) == python_records.scan_records(batch, header, *rules)
        for timestamp, offset in product((NOW_MS - 60, NOW_MS, NOW_MS + 1, NOW_MS + 10), (0, 1, 2, 3)):
            expected = python_records.find_timestamp(batch, header, timestamp, offset)
            assert open_batch(batch).find_timestamp(timestamp, offset) == expected


# -- batches made to cost much -----------------------------------------------------------------------------------------

MANY = 2_000_000  # 14 MB of the smallest records


def many_records(offset_delta: int, timestamp_delta: int = 0, codec: int = 1, attributes: int = 0) -> bytearray:
    """Millions of records of 7 bytes, all alike."""
    body = bytes([0]) + zigzag(timestamp_delta) + zigzag(offset_delta) + b"\x01\x01\x00"
    chosen = make_codec(CODEC_NAMES[codec])
    section = (zigzag(len(body)) + body) * MANY
    section = chosen.compress([section]) if chosen else section
    batch = make_batch([b"x"], codec=codec, section=section, attributes=attributes)
    struct.pack_into(">i", batch, 23, MANY - 1)
    return patched(batch, 57, ">i", MANY)


def zigzag(value: int) -> bytes:
    raw, out = value << 1 ^ value >> 63, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


@pytest.mark.parametrize(
    ("batch", "code", "listed"),
    [
        (many_records(0, -1), ErrorCode.INVALID_RECORD, 0),  # all have offset delta 0
        (many_records(0, -1, codec=0), ErrorCode.INVALID_TIMESTAMP, MAX_FAILING),
        (many_records(0, codec=0, attributes=8), ErrorCode.INVALID_TIMESTAMP, MAX_FAILING),
    ],
    ids=["wrong offsets", "wrong times", "claims append time"],
)
def test_batch_of_millions_of_wrong_records_is_refused_at_once(batch: bytearray, code: int, listed: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=0, max_message_bytes=1 << 30)
    struct.pack_into(">q", batch, 27, NOW_MS)
    batch = patched(batch, 35, ">q", NOW_MS)
    tracemalloc.start()
    started_s = time.process_time()
    try:
        with pytest.raises(RecordsRefusedError) as caught:
            validate_client_batch(memoryview(batch), config, NOW_MS)
        cpu_s, (_, peak_bytes) = time.process_time() - started_s, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (caught.value.code, len(caught.value.record_errors)) == (code, listed)
    assert listed == 0 or f"{MANY} of {MANY} records" in str(caught.value)
    assert cpu_s < 1
    assert peak_bytes < MANY * 7 * 2 + (64 << 20)


@pytest.mark.parametrize(("plain_bytes", "is_taken"), [(16 << 20, True), (17 << 20, False)])
def test_batch_may_expand_so_far_and_no_further(plain_bytes: int, is_taken: bool) -> None:
    batch = make_batch([bytes(plain_bytes - 100)], codec=4)
    config = LogConfig(max_message_bytes=100_000)
    assert (refusal(batch, config) is None) is is_taken
    assert refusal(batch, replace(config, max_message_bytes=1 << 20)) is None


def test_time_is_found_in_a_batch_of_millions_without_an_object_for_each() -> None:
    batch = many_records(0, codec=0)
    tracemalloc.start()
    try:
        assert open_batch(batch).find_timestamp(2**62, 0) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
