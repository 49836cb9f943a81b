"""Snappy in Python: the same blocks as the library's, and a broker that needs no extra package for them."""

from __future__ import annotations

import os
import random

import cramjam
import pytest

from kafkaprod import compression
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.append_validation import LargeBatchError, validate_client_batch
from kafkaprod.compression import CODEC_IDS, decompress, is_slow, make_codec, snappy_blocks
from kafkaprod.errors import ConfigError, CorruptDataError
from tests.support.broker.fixtures_log import NOW_MS, make_batch

TEXT = b"".join(b'{"id": %d, "name": "order"}\n' % i for i in range(3_000))
SAMPLES = {
    "empty": b"",
    "one": b"x",
    "text": TEXT,
    "noise": os.urandom(70_000),
    "zeros": bytes(200_000),
    "periods": b"abcde" * 5_000,
    "far": (noise := os.urandom(90_000)) + noise,
}
BATCHES = {name: make_batch([b"v" * 100, b"w" * 100], codec=CODEC_IDS[name]) for name in ("lz4", "snappy")}
BATCHES["large"] = make_batch([b"v" * 60_000], codec=CODEC_IDS["snappy"])


def plain_of(block: bytes) -> bytes:
    plain = bytearray(snappy_blocks.decompress_raw_len(block))
    snappy_blocks.decompress_raw_into(block, plain)
    return bytes(plain)


@pytest.fixture
def without_cramjam(monkeypatch):
    monkeypatch.setattr(compression, "_snappy", lambda: snappy_blocks)


@pytest.mark.parametrize("name", SAMPLES)
def test_blocks_are_read_by_the_library_and_the_librarys_are_read(name):
    data = SAMPLES[name]
    assert bytes(cramjam.snappy.decompress_raw(snappy_blocks.compress_raw(data))) == data
    assert plain_of(bytes(cramjam.snappy.compress_raw(data))) == data


def test_elements_that_few_writers_use_are_read():
    literal = bytes([3 << 2]) + b"abcd"
    assert plain_of(bytes([8]) + literal + bytes([3 << 2 | 3]) + (4).to_bytes(4, "little")) == b"abcdabcd"
    assert plain_of(bytes([8]) + literal + bytes([0 << 2 | 1, 4])) == b"abcdabcd"
    assert plain_of(bytes([4, 60 << 2, 3]) + b"abcd") == b"abcd"
    assert plain_of(bytes([4, 63 << 2, 3, 0, 0, 0]) + b"abcd") == b"abcd"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"", "no plain size"),
        (b"\xff" * 6, "no plain size"),
        (b"\xff\xff\xff\xff\x7f", "no plain size"),
        (b"\x04\x0cabc", "a literal of 4 bytes"),
        (b"\x04\xf0", "cut off"),
        (b"\x08\x0cabcd\x01", "cut off"),
        (b"\x08\x0cabcd\x01\x00", "offset 0"),
        (b"\x08\x0cabcd\x01\x05", "before the block's begin"),
        (b"\x04\x0cabcd\x00e", "claims 4 plain bytes"),
        (b"\x05\x0cabcd", "claims 5 plain bytes"),
    ],
)
def test_damage_is_named(block, words):
    with pytest.raises(CorruptDataError, match=words):
        plain_of(block)


def test_damaged_blocks_raise_nothing_else_and_agree_with_the_library():
    rng = random.Random(7)
    whole = bytes(cramjam.snappy.compress_raw(TEXT[:2_000]))
    for _ in range(3_000):
        block = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            block[rng.randrange(len(block))] = rng.randrange(256)
        try:
            ours = plain_of(bytes(block)) if snappy_blocks.decompress_raw_len(block) < 100_000 else None
        except CorruptDataError:
            ours = None
        try:
            theirs = bytes(cramjam.snappy.decompress_raw(bytes(block)))
        except Exception:
            theirs = None
        assert ours == theirs or (theirs is not None and len(theirs) >= 100_000)


@pytest.mark.usefixtures("without_cramjam")
def test_without_the_library_snappy_is_read_and_only_a_producer_refuses_it():
    block = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(CODEC_IDS["snappy"], block, 1 << 20) == TEXT
    with pytest.raises(ConfigError, match=r"pip install 'kafkaprod\[snappy\]'"):
        make_codec("snappy")
    codec = make_codec("snappy", may_be_slow=True)
    assert codec is not None
    assert decompress(codec.codec_id, codec.compress([TEXT]), 1 << 20) == TEXT
    unknown = max(CODEC_IDS.values()) + 1
    assert [codec_id for codec_id in (*CODEC_IDS.values(), unknown) if is_slow(codec_id)] == [CODEC_IDS["snappy"]]


@pytest.mark.usefixtures("without_cramjam")
@pytest.mark.parametrize("wanted", ["producer", "snappy", "zstd"])
def test_without_the_library_a_broker_takes_and_writes_snappy(wanted):
    batch = bytearray(BATCHES["lz4" if wanted == "snappy" else "snappy"])
    valid = validate_client_batch(memoryview(batch), LogConfig(compression_type=wanted), NOW_MS)
    assert valid.header.codec == CODEC_IDS["snappy" if wanted == "producer" else wanted]


@pytest.mark.usefixtures("without_cramjam")
def test_without_the_library_a_batch_of_some_size_is_no_work_of_the_loop():
    batch = bytearray(BATCHES["large"])
    with pytest.raises(LargeBatchError):
        validate_client_batch(memoryview(batch), LogConfig(), NOW_MS, 1 << 20)
    assert validate_client_batch(memoryview(batch), LogConfig(), NOW_MS).header.record_count == 1
