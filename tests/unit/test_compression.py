"""The codecs: round trips, what Java demands of their output, limits, damage."""

import gzip
import hashlib
import os
import sys
import threading
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from isal import isal_zlib

from kafkaprod.compression import CODEC_IDS, decompress, make_codec
from kafkaprod.errors import ConfigError, CorruptDataError
from tests.support.codecs import codec_of

NAMES = ["gzip", "snappy", "lz4", "zstd"]
TEXT = b"".join(b'{"id": %d, "name": "order"}\n' % i for i in range(20_000))
LIMIT = 1 << 24


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, os.urandom(200_000), bytes(1_000_000)], ids=["empty", "one", "text", "noise", "zeros"]
)
@pytest.mark.parametrize("pieces", [1, 3])
def test_round_trip(name, data, pieces):
    codec = codec_of(name)
    step = max(1, len(data) // pieces)
    parts = [memoryview(data)[at : at + step] for at in range(0, len(data), step)] or [memoryview(data)]
    blob = codec.compress(parts)
    assert decompress(CODEC_IDS[name], blob, LIMIT) == data
    assert decompress(CODEC_IDS[name], memoryview(bytearray(blob)), LIMIT) == data


@pytest.mark.parametrize(
    ("name", "levels"), [("gzip", [-1, *range(1, 10)]), ("lz4", range(1, 18)), ("zstd", [-131072, -5, -1, 1, 3, 9])]
)
def test_every_level_round_trips(name, levels):
    for level in levels:
        assert decompress(CODEC_IDS[name], codec_of(name, level).compress([TEXT]), LIMIT) == TEXT


def test_zstd_highest_levels_round_trip():
    for level in (19, 22):
        for size in (5000, 150_000):
            assert decompress(4, codec_of("zstd", level).compress([TEXT[:size]]), LIMIT) == TEXT[:size]


@pytest.mark.parametrize(
    ("name", "level"),
    [("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("zstd", -131073)],
)
def test_level_out_of_range_is_refused(name, level):
    with pytest.raises(ConfigError, match=f"compression level {level} of {name} is outside"):
        codec_of(name, level)


def test_unknown_codec_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown compression codec 'brotli'; known: none, gzip, snappy, lz4, zstd"):
        codec_of("brotli")


def test_none_is_no_codec():
    assert make_codec("none") is None


def test_defaults_are_kafkas():
    assert [codec_of(name).level for name in NAMES] == [-1, None, 9, 3]


# What others demand


def test_lz4_frame_is_what_java_reads():
    """Independent 64 KiB blocks, no content size, no checksums: 60 40 82."""
    for data in (b"small", TEXT, os.urandom(300_000)):
        blob = codec_of("lz4").compress([data])
        assert blob[:7] == bytes.fromhex("04224d18604082")
        assert blob[-4:] == bytes(4)
    for level in (1, 5, 12, 17):
        assert codec_of("lz4", level).compress([TEXT])[:7] == bytes.fromhex("04224d18604082")


def test_lz4_default_level_is_the_fast_compressor():
    assert codec_of("lz4").compress([TEXT]) == codec_of("lz4", 9).compress([TEXT])
    assert len(codec_of("lz4", 5).compress([TEXT])) < len(codec_of("lz4", 9).compress([TEXT]))


def test_snappy_is_a_xerial_stream_of_32_kib_blocks():
    blob = codec_of("snappy").compress([TEXT[:70_000]])
    assert blob[:16] == bytes.fromhex("82534e41505059000000000100000001")
    sizes = []
    at = 16
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        sizes.append(len(cramjam.snappy.decompress_raw(blob[at + 4 : at + 4 + size])))
        at += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_gzip_without_a_level_takes_the_faster_library():
    fast, small = (codec_of("gzip", level).compress([TEXT]) for level in (-1, 6))
    assert fast == isal_zlib.compress(TEXT, 2, 31)
    assert small == zlib.compress(TEXT, 6, 31)


def test_gzip_without_the_faster_library_takes_the_default_of_the_standard_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert codec_of("gzip").compress([TEXT]) == zlib.compress(TEXT, 6, 31)


def test_gzip_is_read_by_the_standard_library():
    for level in (-1, 1, 6):
        assert gzip.decompress(codec_of("gzip", level).compress([TEXT])) == TEXT


def test_zstd_is_one_frame():
    assert zstandard.ZstdDecompressor().decompress(codec_of("zstd").compress([TEXT]), max_output_size=LIMIT) == TEXT


def test_zstd_batch_of_the_default_size_is_no_larger_than_its_halves():
    """It was 8 % larger with the parameters that the library has for its size."""
    digits = b"".join(b"%08d" % i + hashlib.sha512(b"%d" % i).hexdigest()[:100].encode() for i in range(2427))
    assert (1 << 18) - 108 <= len(digits) <= 1 << 18
    compress = codec_of("zstd").compress
    half = len(digits) // 2
    assert len(compress([digits])) < 1.03 * (len(compress([digits[:half]])) + len(compress([digits[half:]])))


# What others write


def test_raw_snappy_block_as_librdkafka_writes_it_is_read():
    assert decompress(2, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT


def test_concatenated_xerial_streams_are_read():
    blob = codec_of("snappy").compress([b"one"]) + codec_of("snappy").compress([b"two"])
    assert decompress(2, blob, LIMIT) == b"onetwo"


def test_concatenated_gzip_members_are_read():
    assert decompress(1, gzip.compress(b"one") + gzip.compress(b"two"), LIMIT) == b"onetwo"


def test_concatenated_zstd_frames_are_read():
    compressor = zstandard.ZstdCompressor()
    assert decompress(4, compressor.compress(b"one") + compressor.compress(b"two"), LIMIT) == b"onetwo"


def test_lz4_frames_with_linked_blocks_checksums_and_sizes_are_read():
    blob = lz4.frame.compress(TEXT, block_linked=True, content_checksum=True, store_size=True)
    assert decompress(3, blob, LIMIT) == TEXT


# Damage and bombs


@pytest.mark.parametrize("name", NAMES)
def test_bomb_is_stopped_at_the_limit(name):
    blob = codec_of(name).compress([bytes(10_000_000)])
    with pytest.raises(CorruptDataError, match="1000"):
        decompress(CODEC_IDS[name], blob, 1000)


@pytest.mark.parametrize("name", NAMES)
def test_output_of_exactly_the_limit_is_allowed(name):
    assert decompress(CODEC_IDS[name], codec_of(name).compress([TEXT]), len(TEXT)) == TEXT
    with pytest.raises(CorruptDataError):
        decompress(CODEC_IDS[name], codec_of(name).compress([TEXT]), len(TEXT) - 1)


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd", "snappy"])
def test_cut_data_is_damage(name):
    blob = codec_of(name).compress([TEXT])
    for size in (5, 17, len(blob) // 2, len(blob) - 1):
        with pytest.raises(CorruptDataError):
            decompress(CODEC_IDS[name], blob[:size], LIMIT)


@pytest.mark.parametrize("name", NAMES)
def test_garbage_is_damage(name):
    with pytest.raises(CorruptDataError):
        decompress(CODEC_IDS[name], b"\x99garbage that is nothing" * 3, LIMIT)


# A header has three bits for the codec.
@pytest.mark.parametrize("codec_id", [0, *sorted(set(range(8)) - set(CODEC_IDS.values())), -1])
def test_unknown_codec_id_is_damage(codec_id):
    with pytest.raises(CorruptDataError, match=f"unknown compression codec id {codec_id}"):
        decompress(codec_id, b"x", LIMIT)


def test_codecs_may_be_shared_between_threads():
    codec = codec_of("zstd")
    failures = []

    def work(seed):
        data = bytes([seed]) * 1000 + TEXT[:3000]
        for _ in range(50):
            if decompress(4, codec.compress([data]), LIMIT) != data:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_gzip_trailer_is_checked():
    blob = bytearray(codec_of("gzip").compress([TEXT]))
    blob[-6] ^= 0xFF
    with pytest.raises(CorruptDataError, match="damaged gzip"):
        decompress(1, bytes(blob), LIMIT)
    assert zlib.decompress(codec_of("gzip").compress([TEXT]), 31) == TEXT
