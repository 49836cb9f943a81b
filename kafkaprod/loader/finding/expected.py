"""What a script knows of an input before it is loaded, and a load compares before it is complete.

A pipe cannot tell that its writer died, nor a text that it was cut at the end of a row: who made the input knows how
many rows or bytes it has, or their SHA-256. Bytes are those of the files or the pipe, before decompression, so that
`wc -c` and `sha256sum` give the same. Files are compared before anything is sent, pipes at their end, rows before the
last commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkaprod.loader.opening.errors import LoadRefusedError, UnexpectedInputError
from kafkaprod.loader.opening.opening import open_raw
from kafkaprod.loader.opening.source import Source
from kafkaprod.text import counted

READ_BYTES = 1 << 20


class _Hash(Protocol):
    def update(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Expected:
    """Holds what a whole input has; None: not known.

    Attributes:
        rows: Number of rows of all inputs: those that are sent, and bad ones.
        byte_count: Bytes of all inputs.
        sha256: The SHA-256 of all inputs, one behind the other, in hexadecimal digits.
    """

    rows: int | None = None
    byte_count: int | None = None
    sha256: str | None = None

    def check_rows(self, count: int, *, is_end: bool) -> None:
        """Compare rows that were read.

        Args:
            count: How many.
            is_end: There are no more.

        Raises:
            UnexpectedInputError: They are too many, or too few at the end.
        """
        if self.rows is None or count == self.rows or (count < self.rows and not is_end):
            return
        if is_end:
            raise UnexpectedInputError(
                f"the input ends after {counted(count, 'row')}, but --expect-rows is {self.rows:,}"
            )
        raise UnexpectedInputError(f"the input has more rows than --expect-rows {self.rows:,}")

    def watch(self, sources: Sequence[Source]) -> None:
        """Compare the bytes of files now, and those of a pipe when it is read.

        Args:
            sources: The inputs.

        Raises:
            LoadRefusedError: The bytes are others and nothing was sent, or a pipe is not the only input.
            UnexpectedInputError: So are those of a pipe; also raised to who reads it up to its end.
            OSError, LoadError: An input cannot be read.
        """
        if self.byte_count is None and self.sha256 is None:
            return
        by_path = {source.path: source for source in sources}  # members of an archive are one file
        pipes = [source.pipe for source in by_path.values() if source.pipe is not None]
        name = f"{sources[0].name} has" if len(by_path) == 1 else f"{len(by_path)} files together have"
        if not pipes:
            try:
                self._compare(name, _content(by_path.values()) if self.sha256 else None, _size(by_path.values()))
            except UnexpectedInputError as error:
                raise LoadRefusedError(f"{error}. Nothing was sent") from error
        elif len(by_path) > 1:
            raise LoadRefusedError(
                "--expect-bytes and --expect-sha256 are for files, or for one pipe alone: load the pipe by itself"
            )
        else:
            content = hashlib.sha256()
            pipes[0].watch(content.update, lambda size: self._compare(name, content, size))

    def _compare(self, name: str, content: _Hash | None, size: int) -> None:
        if self.byte_count is not None and size != self.byte_count:
            raise UnexpectedInputError(f"{name} {size:,} bytes, but --expect-bytes is {self.byte_count:,}")
        if self.sha256 is not None and content is not None and content.hexdigest() != self.sha256.lower():
            raise UnexpectedInputError(
                f"{name} the SHA-256 {content.hexdigest()}, but --expect-sha256 is {self.sha256.lower()}"
            )


def _size(sources: Iterable[Source]) -> int:
    return sum(source.size or 0 for source in sources)


def _content(sources: Iterable[Source]) -> _Hash:
    content = hashlib.sha256()
    for source in sources:
        with open_raw(source) as file:
            while data := file.read(READ_BYTES):
                content.update(data)
    return content
