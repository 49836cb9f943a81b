"""Describe one input of a load."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final

from kafkaprod.loader.opening.archives import ZipArchive
from kafkaprod.loader.opening.encodings import UTF8
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.pipes import STDIN, Pipe
from kafkaprod.loader.opening.remote.objects import RemoteObject
from kafkaprod.loader.opening.table_columns import TableColumn

BINARY_FORMATS: Final = ("parquet", "arrow", "orc", "avro")

# Values are int, str or None where folders' names have them; those of a Delta table have the column's type.
FolderColumns = tuple[tuple[str, Any], ...]


def is_inside(directory: str, path: str) -> bool:
    """Return whether a file lies in a folder or below it, where links in both lead."""
    folder = os.path.realpath(directory)
    return os.path.commonpath([folder, os.path.realpath(path)]) == folder


@dataclass(frozen=True, slots=True)
class Source:
    """One input: a file, an object of another machine, a member of a zip archive, or a pipe (`-` is stdin).

    Attributes:
        size: Bytes of the file on disk; None where that is not known.
        mtime_ns: When it was last changed; 0 for pipes.
        inode: Device and number of the file when it was found; None: not known, or not the same on all machines.
        encoding: The encoding of its text; None: not given, taken for UTF-8 and checked.
        pipe: The open pipe, if it can be read only once.
        remote: The object, if it is one of another machine; then `path` is its name without secrets.
        archive: The zip archive that it is a member of, which all of them share.
        folder_columns: Name and value of the columns that its folders are named for: `year=2024`.
        table_version: The version of the Delta table, or the snapshot of the Iceberg table, that it is a file of; None:
            of none.
        table_columns: Its columns as that table has them; None: it is a file of none.
    """

    path: str
    format: str
    compression: str = "none"
    member: str = ""
    size: int | None = None
    mtime_ns: int = 0
    encoding: str | None = None
    inode: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    pipe: Pipe | None = field(default=None, compare=False, repr=False)
    remote: RemoteObject | None = field(default=None, compare=False, repr=False)
    archive: ZipArchive | None = field(default=None, compare=False, repr=False)
    folder_columns: FolderColumns = ()
    table_version: int | None = field(default=None, compare=False)
    table_columns: tuple[TableColumn, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Return the name for messages; bytes of it that are not UTF-8 are escaped."""
        path = "stdin" if self.path == STDIN else os.fsencode(self.path).decode(errors="backslashreplace")
        return f"{path}:{self.member}" if self.member else path

    @property
    def has_text_offsets(self) -> bool:
        """Return whether offsets in the text are offsets in the file."""
        return self.compression == "none" and self.encoding in (None, UTF8)

    def check_unchanged(self, status: os.stat_result) -> None:
        """Refuse a file that is no longer the one that was found.

        Args:
            status: The status of the open file.

        Raises:
            LoadError: It has another size, another time, or another inode.
        """
        if not self.size and not status.st_size:  # those of /proc have content nevertheless, and new times
            return
        if self.size is None:
            return
        why = ""
        if status.st_size < self.size:
            why = f"was cut to {status.st_size:,} bytes while it was read; it had {self.size:,}"
        elif status.st_size > self.size:
            why = f"grew to {status.st_size:,} bytes while it was read; it had {self.size:,}"
        elif status.st_mtime_ns != self.mtime_ns:
            why = "was written to while it was read"
        elif self.inode is not None and (status.st_dev, status.st_ino) != self.inode:
            why = "was replaced by another file while it was read"
        if why:
            raise LoadError(
                f"{self.name} {why}. Load a file that is no longer written to, from the beginning with --restart"
            )
