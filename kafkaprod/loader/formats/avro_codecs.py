"""Decompress the blocks of Avro files, up to a limit. Source: Avro 1.12, Object Container Files, "Required Codecs"."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from kafkaprod.compression import CODEC_IDS, ExpansionError, decompress
from kafkaprod.loader.opening.errors import LoadRefusedError

_CHECKSUM_BYTES: Final = 4  # CRC-32 of what is in a block, behind each block of snappy
_SIZE_BYTES: Final = 4  # in front of each block of lz4

Decompressor = Callable[[bytes, int], bytes]


class DamagedBlockError(Exception):
    """The block does not have what its codec says; the message has why."""


class TooLargeError(Exception):
    """The block has more bytes than the limit."""


def decompressor_of(codec: str, source: str) -> Decompressor | None:
    """Return what decompresses a block up to a number of bytes; None: blocks are not compressed.

    Args:
        codec: The name in the file's header; empty: none.
        source: The name of the input.

    Raises:
        LoadRefusedError: The codec is not known, or this Python lacks it.
    """
    if codec in ("null", ""):
        return None
    makers = {
        "deflate": _deflate,
        "snappy": _snappy,
        "zstandard": _zstandard,
        "bzip2": _bzip2,
        "xz": _xz,
        "lz4": _lz4,
    }
    if codec not in makers:
        raise LoadRefusedError(f"{source}: its codec {codec[:60]!r} is not known; known are null, {', '.join(makers)}")
    return _guarded(makers[codec])


def _guarded(decompressor: Decompressor) -> Decompressor:
    """Give all errors of libraries one type."""

    def decompress_block(data: bytes, limit: int) -> bytes:
        try:
            plain = decompressor(data, limit)
        except (DamagedBlockError, TooLargeError, MemoryError):
            raise
        except ExpansionError as error:
            raise TooLargeError from error
        except ImportError as error:
            raise LoadRefusedError(f"this Python lacks what reads the codec of an Avro file: {error}") from error
        except Exception as error:  # each library has its own
            raise DamagedBlockError(str(error)) from error
        if len(plain) > limit:
            raise TooLargeError
        return plain

    return decompress_block


def _deflate(data: bytes, limit: int) -> bytes:
    return _whole(zlib.decompressobj(-zlib.MAX_WBITS), data, limit)


def _bzip2(data: bytes, limit: int) -> bytes:
    import bz2

    return _whole(bz2.BZ2Decompressor(), data, limit)


def _xz(data: bytes, limit: int) -> bytes:
    import lzma

    return _whole(lzma.LZMADecompressor(), data, limit)


def _whole(stream: Any, data: bytes, limit: int) -> bytes:
    plain: bytes = stream.decompress(data, limit + 1)
    if len(plain) <= limit and not stream.eof:
        raise DamagedBlockError("its compressed data does not end")
    return plain


def _snappy(data: bytes, limit: int) -> bytes:
    plain = bytes(decompress(CODEC_IDS["snappy"], data[:-_CHECKSUM_BYTES], limit))
    if zlib.crc32(plain) != int.from_bytes(data[-_CHECKSUM_BYTES:], "big"):
        raise DamagedBlockError("its checksum is that of other data")
    return plain


def _zstandard(data: bytes, limit: int) -> bytes:
    return bytes(decompress(CODEC_IDS["zstd"], data, limit))


def _lz4(data: bytes, limit: int) -> bytes:
    import lz4.block

    if int.from_bytes(data[:_SIZE_BYTES], "little") > limit:
        raise TooLargeError
    return bytes(lz4.block.decompress(data))
