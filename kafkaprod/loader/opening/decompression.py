"""Decompress an input up to a proven end.

A compressed input is one stream after the other: gzip's members, frames of zstd and lz4, streams of bzip2 and xz. Each
says itself where it ends. The input ends where the last of them has ended and nothing follows; any other end means that
it is cut off. Libraries are less strict: bz2 takes damage behind the first stream for the end, zstandard a cut.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol

import lz4.frame
import zstandard

from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError

READ_BYTES: Final = 256 << 10
PIECE_BYTES: Final = 16 << 10  # given to a library at a time; what it hands back behind a stream's end is copied
ZSTD_PIECE_BYTES: Final = 4 << 10  # its library has no limit for the output: a bomb makes 32 KiB of a byte
MOST_WINDOW_BYTES: Final = 128 << 20  # of zstd, as its own program has it without --long
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_PADDED: Final = ("gzip", "xz")  # zeros may follow a stream


class StreamDecoder(Protocol):
    """Decompresses one stream."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: Any, max_length: int) -> bytes: ...


class DecompressedStream(io.RawIOBase):
    """Reads the streams of a compressed input as one.

    Args:
        raw: Gives the compressed bytes; a read of it gives none at the end only.
        codec: Gzip, zstd, lz4, bz2 or xz.
        name: The name of the input, for messages.
    """

    def __init__(self, raw: io.RawIOBase, codec: str, name: str) -> None:
        self._raw = raw
        self._codec = codec
        self._name = name
        self._new_decoder, self._errors = _decoders(codec)
        self._decoder: StreamDecoder | None = None  # None: between streams
        self._piece_bytes = ZSTD_PIECE_BYTES if codec == "zstd" else PIECE_BYTES
        self._data = memoryview(b"")  # of the raw input, from `_position` on not used yet
        self._position = 0
        self._read_count = 0
        self._start = 0  # where the stream begins that is being read
        self._given_count = 0  # decompressed bytes
        self._out = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, room: Any) -> int:
        """Read some bytes; see io.RawIOBase.

        Raises:
            LoadError: The input is cut off or damaged.
        """
        into = memoryview(room).cast("B")
        while not self._out:
            if not self._advance(max(len(into), 1)):
                return 0
        count = min(len(into), len(self._out))
        into[:count] = self._out[:count]
        self._out = self._out[count:]
        self._given_count += count
        return count

    def _advance(self, most: int) -> bool:
        """Decompress another piece; return False at the end."""
        decoder = self._decoder
        piece = memoryview(b"")
        if decoder is None or decoder.needs_input:
            has_more = self._fill()
            if decoder is None:
                if not self._begins(has_more=has_more):
                    return False
                decoder = self._decoder = self._new_decoder()
            elif not has_more:
                raise self._cut_off()
            piece = self._data[self._position : self._position + self._piece_bytes]
            self._position += len(piece)
        try:
            self._out = memoryview(decoder.decompress(piece, most))
        except self._errors as error:
            if cure := _cure(error, self._codec, self._name):
                raise LoadError(cure) from error
            raise LoadError(
                f"{self._name} is damaged: its {self._codec} stream that begins at byte {self._start:,} cannot be "
                f"read further than byte {self._place():,}: {error}"
            ) from error
        if decoder.eof:
            self._position -= len(decoder.unused_data or b"")
            self._decoder = None
        return True

    def _begins(self, *, has_more: bool) -> bool:
        """Return whether another stream begins, behind zeros that may fill up the one before."""
        while has_more and self._codec in _PADDED and self._start < self._place():
            rest = bytes(self._data[self._position :])
            zeros = len(rest) - len(rest.lstrip(b"\0"))
            self._position += zeros
            if zeros < len(rest):
                break
            has_more = self._fill()
        if not has_more and self._read_count == 0:
            raise LoadError(f"{self._name} is cut off: it is empty, and an empty {self._codec} stream is not")
        self._start = self._place()
        return has_more

    def _fill(self) -> bool:
        """Have bytes of the input; return False at its end."""
        if self._position < len(self._data):
            return True
        data = self._raw.read(READ_BYTES) or b""
        self._data, self._position = memoryview(data), 0
        self._read_count += len(data)
        return bool(data)

    def _place(self) -> int:
        return self._read_count - len(self._data) + self._position

    def _cut_off(self) -> LoadError:
        return LoadError(
            f"{self._name} is cut off: it ends at byte {self._place():,}, within the {self._codec} stream that begins "
            f"at byte {self._start:,}; {self._given_count:,} bytes were decompressed"
        )


def _decoders(codec: str) -> tuple[Callable[[], StreamDecoder], tuple[type[Exception], ...]]:
    """Return what makes a decoder of the next stream, and the errors that such a decoder raises."""
    if codec == "gzip":
        return _gzip_decoders()
    if codec == "zstd":
        decompressor = zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW_BYTES)
        return (lambda: _ZstdFrame(decompressor)), (zstandard.ZstdError,)
    if codec == "lz4":
        return lz4.frame.LZ4FrameDecompressor, (RuntimeError,)
    if codec == "bz2":
        return _optional("bz2", "BZ2Decompressor"), (OSError, ValueError)
    lzma = _optional("lzma", "LZMADecompressor")
    import lzma as module

    return (lambda: lzma(module.FORMAT_XZ)), (module.LZMAError,)


def _gzip_decoders() -> tuple[Callable[[], StreamDecoder], tuple[type[Exception], ...]]:
    module: Any = zlib
    with contextlib.suppress(ImportError):
        from isal import isal_zlib as module
    return (lambda: _GzipMember(module.decompressobj(_GZIP_WBITS))), (module.error, zlib.error)


def _cure(error: Exception, codec: str, name: str) -> str:
    """Return what to do with a sound stream that cannot be read; empty: it is damaged."""
    why = str(error)
    if codec == "zstd" and "too much memory" in why:
        return (
            f"{name} was compressed with a window of more than {MOST_WINDOW_BYTES >> 20} MiB, which a load does not "
            f"take into memory: zstd -dc --long=31 {name} | kafkaprod load -"
        )
    if codec == "zstd" and "ictionary" in why:
        return (
            f"{name} was compressed with a dictionary, which a load does not have: zstd -dc -D DICTIONARY {name} | "
            "kafkaprod load -"
        )
    return ""


def _optional(module: str, name: str) -> Any:
    """Return a class of a module that some builds of Python lack."""
    try:
        return getattr(__import__(module), name)
    except ImportError as error:
        raise LoadRefusedError(f"this Python was built without {module}: decompress the input first") from error


class _GzipMember:
    """A member of gzip, whose length and checksum zlib compares."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: Any, max_length: int) -> bytes:
        return bytes(self._inner.decompress(data or self._inner.unconsumed_tail, max_length))


class _ZstdFrame:
    """A frame of zstd, or one to skip."""

    needs_input = True

    def __init__(self, decompressor: Any) -> None:
        self._inner = decompressor.decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data)

    def decompress(self, data: Any, max_length: int) -> bytes:
        return bytes(self._inner.decompress(data))
