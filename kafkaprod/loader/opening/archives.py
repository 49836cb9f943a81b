"""Open a zip archive once for all of its members.

To parse its directory again for each of them would cost the square of their number.
"""

from __future__ import annotations

import contextlib
import io
import weakref
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from typing import IO, Any, Final

from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.pipes import Pipe

READ_BYTES: Final = 128 << 10
ERRORS_OF_ZIP: Final = (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class ZipArchive:
    """Keeps a zip archive open as long as an input of it is known. A copy for another process opens it again."""

    def __init__(self) -> None:
        self._opened: tuple[zipfile.ZipFile, io.RawIOBase | None] | None = None

    def __reduce__(self) -> Any:
        return ZipArchive, ()

    def open(
        self, name: str, pipe: Pipe | None, open_raw: Callable[[], io.RawIOBase]
    ) -> tuple[zipfile.ZipFile, io.RawIOBase | None]:
        """Return the archive, and its file; None: a pipe.

        Args:
            name: Its name, for messages.
            pipe: It is read from this one.
            open_raw: Opens it, where it is no pipe.

        Raises:
            LoadRefusedError: It is no whole archive.
            OSError: It cannot be read.
        """
        if self._opened is None:
            with contextlib.ExitStack() as stack:
                file: IO[bytes]
                if pipe is not None:
                    raw, file = None, pipe.spool()
                else:
                    raw = open_raw()
                    file = stack.enter_context(io.BufferedReader(raw, READ_BYTES))
                try:
                    archive = stack.enter_context(zipfile.ZipFile(file))
                except (*ERRORS_OF_ZIP, OSError, ValueError) as error:  # also places outside of it, names of no text
                    raise LoadRefusedError(f"{name} is not a whole zip archive: {error}") from error
                self._opened = archive, raw
                weakref.finalize(self, stack.pop_all().close)
        return self._opened


def check_members(members: list[zipfile.ZipInfo], name: str) -> None:
    """Refuse an archive whose files cannot all be read.

    Args:
        members: Its files and directories.
        name: Its name, for messages.

    Raises:
        LoadRefusedError: A file has no name, two have the same, of which only one could be read, or a directory has
            content.
    """
    counts = Counter(info.filename for info in members)
    twice = next((member for member, count in counts.items() if count > 1), None)
    if twice is not None:
        raise LoadRefusedError(f"{name} has {counts[twice]} files named {twice!r}: unpack it and load the files")
    if "" in counts:
        raise LoadRefusedError(f"{name} is damaged: one of its files has no name")
    filled = next((info.filename for info in members if info.is_dir() and info.file_size), None)
    if filled is not None:
        raise LoadRefusedError(f"{name} is damaged: its directory {filled!r} has content")
