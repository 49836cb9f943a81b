"""Open an input: without compression, as UTF-8, and with an end that is proven.

Whatever gives the bytes, `WholeInput` reads none only at the end, and only where that is the input's whole end:

pipe            the writer has closed it, or died: a pipe cannot tell the two
file            its size, time and inode are those that it was found with
object          as many bytes were read as it had when it was found, all of that object (`remote`)
compressed      the last stream ended, and nothing follows (`decompression`)
zip             the member's length and checksum are those of the archive
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import IO, Any, Final

from kafkaprod.loader.opening.archives import ERRORS_OF_ZIP, ZipArchive, check_members
from kafkaprod.loader.opening.decompression import DecompressedStream
from kafkaprod.loader.opening.encodings import UTF8, Utf8Stream
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.pipes import STDIN, open_stdin_file
from kafkaprod.loader.opening.remote.remote_file import RemoteFile
from kafkaprod.loader.opening.source import BINARY_FORMATS, Source

MOST_ROOM_BYTES: Final = 64 << 20


class WholeInput(io.RawIOBase):
    """Reads the content of an input up to its proven end.

    Args:
        stream: Gives the content.
        source: The input.
        file: The open file, which must not change; None: a pipe.
    """

    def __init__(self, stream: Any, source: Source, file: io.RawIOBase | None) -> None:
        self._stream = stream
        self._source = source
        self._file = file

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether the content is that of the file, byte for byte."""
        return self._source.compression == "none" and bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readinto(self, room: Any) -> int:
        """Read some bytes; see io.RawIOBase.

        Returns:
            How many; 0 at the end, and nowhere else.

        Raises:
            LoadError: The input is cut off, damaged or changed, or cannot be read.
        """
        with self._errors():
            count = self._stream.readinto(room)
        self._check(count, len(room))
        return int(count)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read that many bytes, fewer only at the end; all that are left without a size. Raises as `readinto`."""
        if size is None or size < 0:
            return self.readall()
        pieces: list[bytes] = []
        left = size
        while left:
            most = min(left, MOST_ROOM_BYTES)  # where a damaged length wants too much, not that much
            with self._errors():
                piece = self._stream.read(most)
            self._check(None if piece is None else len(piece), most)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of reading into ours."""
        try:
            yield
        except ERRORS_OF_ZIP as error:
            raise LoadError(f"{self._source.name} is damaged or cut off: {error}") from error
        except OSError as error:
            raise LoadError(f"{self._source.name} cannot be read: {error}") from error

    def _check(self, count: int | None, most: int) -> None:
        if count is None:  # nothing now: only `Pipe` knows how to wait
            raise LoadError(f"{self._source.name} cannot be read: it is non-blocking")
        if not count and most:
            self.check_unchanged()

    def head(self, least: int, most: int) -> bytes:
        """Read the next bytes, up to `most` that are there; fewer than `least` at the end. Raises as `readinto`."""
        room = memoryview(bytearray(most))
        filled = 0
        while filled < least and (count := self.readinto(room[filled:])):
            filled += count
        return bytes(room[:filled])

    def readall(self) -> bytes:
        """Read all that is left. Raises as `readinto`."""
        out = bytearray()
        room = memoryview(bytearray(1 << 20))
        while count := self.readinto(room):
            out += room[:count]
        return bytes(out)

    def check_unchanged(self) -> None:
        """Refuse a file that is no longer what it was. Raises LoadError."""
        if self._file is not None:
            _check_unchanged(self._source, self._file)


@contextlib.contextmanager
def open_source(source: Source) -> Iterator[WholeInput]:
    """Open an input from its first byte on; it is closed at the end. A file must be what it was when it was found.

    Raises:
        LoadError: It is cut off, damaged or changed.
        OSError, LoadRefusedError: It cannot be read.
    """
    with contextlib.ExitStack() as stack:
        stream: Any
        archive = source.archive or ZipArchive()
        if source.compression == "zip":
            members, file = archive.open(source.name, source.pipe, partial(open_raw, source))
        else:
            raw = stack.enter_context(open_raw(source))
            file = None if source.pipe is not None else raw
        if file is not None and source.remote is None:
            _check_unchanged(source, file)
        if source.compression == "zip":
            stream = stack.enter_context(_open_member(members, source))
        elif source.compression == "none":
            stream = raw
        else:
            stream = DecompressedStream(raw, source.compression, source.name)
            stream = stream if source.pipe is None else source.pipe.decompressed(stream)
        if source.encoding is not None and source.encoding != UTF8 and source.format not in BINARY_FORMATS:
            stream = Utf8Stream(stream, source.encoding, source.name)
        whole = WholeInput(stream, source, file)
        yield whole
        whole.check_unchanged()  # not where the reader failed: its error says more


def open_raw(source: Source) -> io.RawIOBase:
    """Open an input as it is, compressed or not. Raises OSError, LoadError."""
    if source.pipe is not None:
        return source.pipe.open()
    if source.remote is not None:
        return RemoteFile(source.remote)
    return open_stdin_file() if source.path == STDIN else open(source.path, "rb", buffering=0)


def _check_unchanged(source: Source, file: io.RawIOBase) -> None:
    if isinstance(file, RemoteFile):
        file.check_unchanged()
    else:
        source.check_unchanged(os.fstat(file.fileno()))


def keep_digest(source: Source) -> None:
    """Have a pipe know what was read of it, so that a later run of the load can compare it. Raises as `open_source`."""
    if source.pipe is None:
        return
    if source.compression == "none":
        source.pipe.keep_digest()
    elif source.compression == "zip":
        source.pipe.keep_digest_of_content([(info.filename, info.file_size, info.CRC) for info in zip_members(source)])
    else:
        source.pipe.keep_digest_of_content()


# -- zip archives ------------------------------------------------------------------------------------------------------


def zip_members(source: Source) -> list[zipfile.ZipInfo]:
    """Return the files of an archive. Raises LoadRefusedError: it is no whole archive, or not all can be read."""
    archive = source.archive or ZipArchive()
    members = archive.open(source.name, source.pipe, partial(open_raw, source))[0].infolist()
    check_members(members, source.name)
    return [info for info in members if not info.is_dir()]


def _open_member(archive: zipfile.ZipFile, source: Source) -> IO[bytes]:
    try:
        return archive.open(source.member)
    except (*ERRORS_OF_ZIP, KeyError, ValueError, OSError) as error:
        raise LoadError(f"{source.name} cannot be read out of its archive: {error}") from error
