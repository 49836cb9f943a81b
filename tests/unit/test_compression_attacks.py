"""Hostile blobs against each codec: what they cost is bounded, in memory and in time.

Each case runs in a process of its own, which reports its error, the CPU seconds and the growth of its peak memory.
"""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard

from kafkaprod.compression import CODEC_IDS, MAX_FRAMES, decompress, make_codec
from kafkaprod.errors import CorruptDataError

LIMIT = 32 << 20
PEAK_BYTES = 3 * LIMIT
CPU_S = 1.5  # the worst takes a tenth of it here; what is quadratic takes minutes
EMPTY_FRAMES_BYTES = 4 << 20
TEXT = b"".join(b'{"id": %d, "name": "order"}\n' % i for i in range(3_000))
NAMES = ["gzip", "snappy", "lz4", "zstd"]

_RUN = """
import json, resource, sys, time
from kafkaprod.compression import decompress
data = sys.stdin.buffer.read()
codec_id, limit = int(sys.argv[1]), int(sys.argv[2])
before, started, error = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), None
try:
    decompress(codec_id, data, limit)
except Exception as caught:
    error = f"{type(caught).__name__}: {caught}"
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([error, time.process_time() - started, peak * unit]))
"""

EMPTY_FRAMES = {
    "gzip": gzip.compress(b""),
    "snappy": struct.pack(">i", 1) + bytes(cramjam.snappy.compress_raw(b"")),
    "lz4": lz4.frame.compress(b""),
    "zstd": zstandard.ZstdCompressor().compress(b""),
}
STARTS = {"snappy": make_codec("snappy").compress([])}  # type: ignore[union-attr]


def zstd_bomb() -> bytes:
    """1 GB in 32 KB: blocks of 128 KiB, each one byte that is repeated."""
    block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return bytes.fromhex("28b52ffd") + b"\0" + b"\x58" + block * 8192


def bomb(name: str) -> bytes:
    if name == "zstd":
        return zstd_bomb()
    zeros = bytes(LIMIT * 4)
    if name == "lz4":
        return lz4.frame.compress(zeros, block_size=lz4.frame.BLOCKSIZE_MAX4MB)  # type: ignore[no-any-return]
    codec = make_codec(name)
    assert codec is not None
    return codec.compress([zeros])


def empty_frames(name: str) -> bytes:
    frame = EMPTY_FRAMES[name]
    return STARTS.get(name, b"") + frame * (EMPTY_FRAMES_BYTES // len(frame))


def run(name: str, data: bytes) -> tuple[str | None, float, int]:
    """(error, CPU seconds, bytes) of one attack."""
    command = [sys.executable, "-c", _RUN, str(CODEC_IDS[name]), str(LIMIT)]
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
    error, cpu_s, peak_bytes = json.loads(done.stdout)
    return error, cpu_s, peak_bytes


def blob(name: str) -> bytes:
    codec = make_codec(name)
    assert codec is not None
    return codec.compress([TEXT])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attack", ["bomb", "empty frames"])
def test_attack_is_refused_within_bounds(name: str, attack: str) -> None:
    if attack == "bomb":
        check_refused(name, bomb(name), f"limit of {LIMIT}")
    else:
        check_refused(name, empty_frames(name), f"more than {MAX_FRAMES}")


def test_raw_snappy_block_that_claims_more_than_it_can_hold_is_refused() -> None:
    check_refused("snappy", b"\xff\xff\xff\x0f" + bytes(100), "cannot expand to 33554431")


def check_refused(name: str, data: bytes, expected: str) -> None:
    error, cpu_s, peak_bytes = run(name, data)
    assert error is not None
    kind = "ExpansionError" if f"limit of {LIMIT}" in expected else "CorruptDataError"  # the first is one of the second
    assert error.startswith(f"{kind}: damaged {name} data of {len(data)} bytes")
    assert expected in error
    assert cpu_s < CPU_S
    assert peak_bytes < PEAK_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_is_refused(name: str) -> None:
    data = blob(name)
    for size in [*range(60), len(data) // 2, len(data) - 4, len(data) - 1]:
        if name == "snappy" and size == len(STARTS["snappy"]):
            continue  # a whole stream without blocks
        with pytest.raises(CorruptDataError):
            decompress(CODEC_IDS[name], data[:size], LIMIT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 9, b"garbage behind the last frame"])
def test_bytes_after_the_last_frame_are_refused(name: str, garbage: bytes) -> None:
    with pytest.raises(CorruptDataError, match=f"damaged {name}"):
        decompress(CODEC_IDS[name], blob(name) + garbage, LIMIT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 100])
def test_frames_one_after_another_are_read(name: str, count: int) -> None:
    assert decompress(CODEC_IDS[name], blob(name) * count, LIMIT) == TEXT * count


def test_skippable_zstd_frame_costs_a_frame_and_gives_nothing() -> None:
    skippable = bytes.fromhex("502a4d18") + struct.pack("<i", 3) + b"abc"
    assert decompress(4, skippable + blob("zstd") + skippable, LIMIT) == TEXT
