"""The five codecs of record batches: none, gzip, snappy, lz4, zstd. Called once per batch by the sender.

Every library here is loaded with its first codec and releases the GIL while it works. Compressor objects that are not
thread-safe are kept per thread.

| codec  | id | levels        | written as                                                               |
|--------|----|---------------|--------------------------------------------------------------------------|
| none   | 0  |               | records as they are                                                      |
| gzip   | 1  | -1, 1..9      | RFC 1952; isal for levels -1, 1 and 2 where it is installed              |
| snappy | 2  |               | xerial stream, 32 KiB blocks; `snappy_blocks` for who may be slow        |
| lz4    | 3  | 1..17, 9=fast | LZ4 frame, independent 64 KiB blocks, no checksums: what Java can read   |
| zstd   | 4  | -131072..22   | one frame                                                                |

snappy_blocks   snappy in Python

Source: KIP-390, KIP-110; org.apache.kafka.common.compress.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.structs import BytesLike

# Imported with the first codec that needs them: together they take longer to load than the rest of a producer.
if TYPE_CHECKING:
    import zstandard


CODEC_IDS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The codecs and their ids in the header of a batch: every other list of them is made from this one."""
CODEC_NAMES: Final = {codec_id: name for name, codec_id in CODEC_IDS.items()}
CODEC_LIST: Final = ", ".join(CODEC_IDS)
"""For texts to users."""
OFFERED_CODECS: Final = ("zstd", "lz4", "gzip", "snappy")
"""In the order in which a broker offers them for metrics, Kafka's: clients take the first that they know."""
LEVELS: Final = {"gzip": (-1, 9, -1), "lz4": (1, 17, 9), "zstd": (-131072, 22, 3)}  # lowest, highest, default

_GZIP_WBITS: Final = 15 + 16
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC: Final = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_NEXT_HEADER: Final = 0x82534E41  # a block length that is really the start of another header
_LZ4_FAST_LEVEL: Final = 9  # Java's level 9 selects its fast compressor; only other levels are high compression
_LZ4_LIBRARY_MAX_LEVEL: Final = 12

MAX_FRAMES: Final = 10_000
"""Most frames of one blob. Writers make one; each costs some microseconds, empty or not."""
_PIECE_BYTES: Final = 32 * 1024  # of input; deflate makes 33 MiB of it at most, lz4 8 MiB
_ZSTD_PIECE_BYTES: Final = 512  # of input: four bytes may stand for a block of 128 KiB, so this for 16 MiB
_ZSTD_WRITE_BYTES: Final = 128 * 1024  # a whole block
_SNAPPY_MAX_RATIO: Final = 64  # at most 64 bytes from one element, which has two bytes or more
_ZSTD_SMALL_BYTES: Final = 128 * 1024  # of a batch; the library's parameters for known sizes are good up to here

_per_thread = threading.local()


class ExpansionError(CorruptDataError):
    """Compressed data has more bytes plain than the caller wants; it may be right or a decompression bomb."""


class Codec(NamedTuple):
    """A codec at a level. Thread-safe.

    Attributes:
        codec_id: The id in the batch's attributes.
        name: Kafka's name.
        level: In the codec's own range; None for a codec without levels.
        compress: Takes the pieces of the records section in order, returns one compressed blob.
    """

    codec_id: int
    name: str
    level: int | None
    compress: Callable[[Sequence[BytesLike]], bytes]


def is_slow(codec_id: int) -> bool:
    """Whether a codec's library is not installed: in Python it takes a hundred times as long, and holds the GIL."""
    return CODEC_NAMES.get(codec_id) == "snappy" and _snappy().__name__ == "kafkaprod.compression.snappy_blocks"


def make_codec(name: str, level: int | None = None, *, may_be_slow: bool = False) -> Codec | None:
    """Return the codec called `name`, None for "none".

    Args:
        name: None, gzip, snappy, lz4 or zstd.
        level: The codec's level, None for its default.
        may_be_slow: Without the library for it, compress in Python.

    Raises:
        ConfigError: Unknown name, level out of range, or the library for it is not installed.
    """
    if name not in CODEC_IDS:
        raise ConfigError(f"unknown compression codec {name!r}; known: {CODEC_LIST}")
    if name in LEVELS:
        lowest, highest, default = LEVELS[name]
        level = default if level is None else level
        if not lowest <= level <= highest or (name == "gzip" and level == 0):
            raise ConfigError(f"compression level {level} of {name} is outside {lowest}..{highest}")
    else:
        level = None
    if name == "none":
        return None
    if not may_be_slow and is_slow(CODEC_IDS[name]):
        raise ConfigError("snappy needs the package cramjam: pip install 'kafkaprod[snappy]'")
    makers: dict[str, Callable[[int], Callable[[Sequence[BytesLike]], bytes]]] = {
        "gzip": _gzip_compressor,
        "snappy": _snappy_compressor,
        "lz4": _lz4_compressor,
        "zstd": _zstd_compressor,
    }
    return Codec(CODEC_IDS[name], name, level, makers[name](level if level is not None else 0))


def decompress(codec_id: int, data: BytesLike, limit: int) -> bytearray:
    """Return the records section of a compressed batch.

    Memory stays near `limit`, whatever the data is, and time is proportional to the sizes of input and output.

    Args:
        codec_id: From the batch's attributes, 1 to 4.
        data: The compressed section: frames (gzip members, xerial blocks) one after another, `MAX_FRAMES` at most.
        limit: Most bytes to produce; more is treated as a decompression bomb.

    Raises:
        CorruptDataError: Unknown codec, damaged or cut data, bytes after the last frame, too many frames, or more than
            `limit` bytes (`ExpansionError`).
    """
    decompressors = {1: _decompress_gzip, 2: _decompress_snappy, 3: _decompress_lz4, 4: _decompress_zstd}
    function = decompressors.get(codec_id)
    if function is None:
        raise CorruptDataError(f"unknown compression codec id {codec_id}")
    try:
        return function(data, limit)
    except ExpansionError as error:
        raise ExpansionError(_damaged(codec_id, data, error)) from error
    except Exception as error:  # each library has its own exception type, cramjam's is not even public
        raise CorruptDataError(_damaged(codec_id, data, error)) from error


def _damaged(codec_id: int, data: BytesLike, error: Exception) -> str:
    return f"damaged {CODEC_NAMES[codec_id]} data of {len(data)} bytes: {error}"


def _gzip_compressor(level: int) -> Callable[[Sequence[BytesLike]], bytes]:
    library: Any = zlib
    if level in (-1, 1, 2):
        with contextlib.suppress(ImportError):
            # isal's level 1 is four times as fast as zlib's and compresses about as well. Its default, 2, takes an
            # eighteenth of the time of zlib's, 6, and makes JSON 14 % larger: who wants it small gives a level.
            library, level = import_module("isal.isal_zlib"), 2 if level == -1 else 1

    def compress(parts: Sequence[BytesLike]) -> bytes:
        stream = library.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
        return b"".join([*[stream.compress(part) for part in parts], stream.flush()])

    return compress


@cache
def _snappy() -> Any:
    """Return cramjam's functions, or their likes in Python."""
    try:
        return import_module("cramjam").snappy
    except ImportError:
        return import_module("kafkaprod.compression.snappy_blocks")


def _snappy_compressor(_: int) -> Callable[[Sequence[BytesLike]], bytes]:
    snappy = _snappy()

    def compress(parts: Sequence[BytesLike]) -> bytes:
        plain = memoryview(b"".join(parts))
        out = [_XERIAL_HEADER]
        for start in range(0, len(plain), _XERIAL_BLOCK_BYTES):
            block = bytes(snappy.compress_raw(plain[start : start + _XERIAL_BLOCK_BYTES]))
            out += [len(block).to_bytes(4, "big"), block]
        return b"".join(out)

    return compress


def _lz4_compressor(level: int) -> Callable[[Sequence[BytesLike]], bytes]:
    import lz4.frame

    library_level = 0 if level == _LZ4_FAST_LEVEL else min(level, _LZ4_LIBRARY_MAX_LEVEL)

    def compress(parts: Sequence[BytesLike]) -> bytes:
        # Java refuses linked blocks ("Dependent block stream is unsupported") and misreads content checksums.
        blob: bytes = lz4.frame.compress(
            parts[0] if len(parts) == 1 else b"".join(parts),
            compression_level=library_level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            block_checksum=False,
            store_size=False,
        )
        return blob

    return compress


def _zstd_compressor(level: int) -> Callable[[Sequence[BytesLike]], bytes]:
    """Larger batches get the parameters of a stream of unknown size, as Java's and librdkafka's do, but smaller tables.

    Those that the library has for sizes from 128 to 256 KiB look for matches of four bytes at level 3: on digits and
    text that is up to 1.8 times slower and 8 % larger (zstd 1.5.7). A stream's tables are for megabytes: half as large
    they find as much in a batch (0 to 0.5 % larger; flights as JSON and CSV, source text), and clearing and
    missing them costs less: 17 and 13 % of the time on rows of 100 B and 1 KB, 2 % on JSON (best of several).
    """
    import zstandard

    def compress(parts: Sequence[BytesLike]) -> bytes:
        plain = parts[0] if len(parts) == 1 else b"".join(parts)
        key = (level, len(plain) > _ZSTD_SMALL_BYTES)
        compressors: dict[tuple[int, bool], zstandard.ZstdCompressor] = _per_thread.__dict__.setdefault("zstd", {})
        compressor = compressors.get(key)
        if compressor is None:
            compressor = compressors[key] = (
                zstandard.ZstdCompressor(compression_params=_zstd_parameters(level))
                if len(plain) > _ZSTD_SMALL_BYTES
                else zstandard.ZstdCompressor(level=level)
            )
        return compressor.compress(plain)

    return compress


def _zstd_parameters(level: int) -> zstandard.ZstdCompressionParameters:
    import zstandard

    stream = zstandard.ZstdCompressionParameters.from_level(level)
    if stream.strategy != zstandard.STRATEGY_DFAST:  # other levels search differently
        return stream
    return zstandard.ZstdCompressionParameters.from_level(
        level, hash_log=stream.hash_log - 1, chain_log=stream.chain_log - 1
    )


class _Stream(Protocol):
    """One frame of a library: takes input piece by piece."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...


def _decompress_gzip(data: BytesLike, limit: int) -> bytearray:
    def start() -> tuple[_Stream, Callable[[memoryview, int], bytes]]:
        stream = zlib.decompressobj(_GZIP_WBITS)
        return stream, stream.decompress

    return _decompress_frames(data, limit, _PIECE_BYTES, start)


def _decompress_lz4(data: BytesLike, limit: int) -> bytearray:
    import lz4.frame

    def start() -> tuple[_Stream, Callable[[memoryview, int], bytes]]:
        stream = lz4.frame.LZ4FrameDecompressor()
        return stream, stream.decompress

    return _decompress_frames(data, limit, _PIECE_BYTES, start)


def _decompress_zstd(data: BytesLike, limit: int) -> bytearray:
    import zstandard

    def start() -> tuple[_Stream, Callable[[memoryview, int], bytes]]:
        stream = zstandard.ZstdDecompressor().decompressobj(write_size=_ZSTD_WRITE_BYTES)
        return stream, lambda piece, _: stream.decompress(piece)  # without a limit of its own: see _ZSTD_PIECE_BYTES

    return _decompress_frames(data, limit, _ZSTD_PIECE_BYTES, start)


def _decompress_frames(
    data: BytesLike,
    limit: int,
    piece_bytes: int,
    start: Callable[[], tuple[_Stream, Callable[[memoryview, int], bytes]]],
) -> bytearray:
    """Decompress frame after frame, in pieces of the input.

    The pieces bound what a bomb can produce between two looks at the limit. They also bound what a library copies to
    hand back the input behind a frame, so the time grows with the input and not with its square.
    """
    view = memoryview(data).cast("B")
    out = bytearray()
    position = 0
    for _ in range(MAX_FRAMES):
        stream, decompress_piece = start()
        while not stream.eof:
            if position == len(view):
                raise CorruptDataError(f"the data is cut off: {len(view)} bytes end within a frame")
            piece = view[position : position + piece_bytes]
            position += len(piece)
            out += decompress_piece(piece, limit + 1 - len(out))
            if len(out) > limit:
                raise _beyond(limit)
        position -= len(stream.unused_data or b"")
        if position == len(view):
            return out
    raise CorruptDataError(f"the data has more than {MAX_FRAMES} frames")


def _decompress_snappy(data: BytesLike, limit: int) -> bytearray:
    snappy = _snappy()
    view = memoryview(data).cast("B")
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(snappy, view, limit, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    for _ in range(MAX_FRAMES):
        if position == len(view):
            return out
        if len(view) - position < 4:
            raise CorruptDataError(f"the data is cut off at byte {min(position, len(view))} of {len(view)}")
        size = int.from_bytes(view[position : position + 4], "big")
        if size == _XERIAL_NEXT_HEADER:
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if size > len(view) - position:
            raise CorruptDataError(f"block of {size} bytes at byte {position} exceeds the {len(view)} bytes given")
        out += _decompress_snappy_block(snappy, view[position : position + size], limit - len(out), limit)
        position += size
    raise CorruptDataError(f"the data has more than {MAX_FRAMES} blocks")


def _decompress_snappy_block(snappy: Any, block: memoryview, room: int, limit: int) -> bytearray:
    if not block:
        raise CorruptDataError("the data is cut off: a block has one byte at least")
    size = snappy.decompress_raw_len(block)
    if size > room:
        raise _beyond(limit)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise CorruptDataError(f"a block of {len(block)} bytes cannot expand to {size} bytes")
    plain = bytearray(size)
    if size:
        snappy.decompress_raw_into(block, plain)
    return plain


def _beyond(limit: int) -> ExpansionError:
    return ExpansionError(f"the data expands beyond the limit of {limit} bytes")
