"""Handle rows that cannot be sent: stop the load, leave them out, or keep them elsewhere."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

from kafkaprod.loader.opening.errors import BadRow, LoadError, LoadRefusedError
from kafkaprod.loader.positions.manifest_file import sync_directory


class BadRowSink(Protocol):
    """Takes bad rows."""

    stops: bool

    def put(self, row: BadRow) -> None:
        """Take a row. Raises LoadError if the load must stop for it."""

    def position(self) -> int:
        """Return the bytes kept so far, for the manifest."""

    def rewind(self, position: int) -> None:
        """Forget the rows kept since `position()` was this: they are read again."""

    def sync(self, timeout_s: float | None = None) -> None:
        """Wait until all rows are on disk or acknowledged. Raises KafkaError, TimeoutError."""

    def close(self, timeout_s: float | None = None) -> None:
        """Close: no more rows come."""

    def join(self, producer: Any) -> None:
        """Send with this producer from now on, in its transactions."""


class Nowhere:
    """Keeps nothing."""

    def rewind(self, position: int) -> None:
        pass

    def position(self) -> int:
        return 0

    def sync(self, timeout_s: float | None = None) -> None:
        pass

    def close(self, timeout_s: float | None = None) -> None:
        pass

    def join(self, producer: Any) -> None:
        pass


class Stop(Nowhere):
    """Stops the load at the first bad row.

    Args:
        can_resume: Whether --resume continues the load.
    """

    stops = True

    def __init__(self, *, can_resume: bool = True) -> None:
        self._can_resume = can_resume

    def put(self, row: BadRow) -> None:
        before = "Rows before it are sent; " if row.row else ""
        how = "continue with the same command, --resume" if self._can_resume else "start over with the same command"
        raise LoadError(f"{row}; {_shown(row.data)}. {before}{how} and --on-error skip (or dead-letter=FILE)")


class Skip(Nowhere):
    """Leaves bad rows out and shows them."""

    stops = False

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show

    def put(self, row: BadRow) -> None:
        self._show(f"left out: {row}")


def open_dead_letters(path: str) -> IO[bytes]:
    """Open a file to append to. One that is new can be read by its owner only, and its name is on the disk then.

    Raises:
        OSError: The disk refused.
    """
    if not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        with contextlib.suppress(PermissionError):  # a directory that may only be written to
            sync_directory(Path(path).parent)
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


class DeadLetterFile:
    """Writes bad rows as JSON lines: source, row, reason, and the bytes as text or base64.

    Args:
        path: The path of the file, which is appended to.
        length: The file's length at the manifest's position: later rows are removed, because they come again; None: the
            load begins.
    """

    stops = False

    def __init__(self, path: str, length: int | None = None) -> None:
        try:
            self._file = open_dead_letters(path)
        except OSError as error:
            raise LoadRefusedError(f"the dead-letter file {path} cannot be written: {error}") from error
        self._path = path
        if length is not None:
            self.rewind(length)

    def put(self, row: BadRow) -> None:
        try:
            self._file.write(dead_letter(row))
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def position(self) -> int:
        return self._file.tell()

    def rewind(self, position: int) -> None:
        try:
            self._file.flush()
            self._file.truncate(min(position, os.path.getsize(self._path)))
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def sync(self, timeout_s: float | None = None) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def close(self, timeout_s: float | None = None) -> None:
        try:
            self._file.close()
        except OSError as error:  # of a full disk: what is not written yet is tried again
            raise self._cannot_be_written(error) from error

    def _cannot_be_written(self, error: OSError) -> LoadError:
        return LoadError(
            f"the dead-letter file {self._path} cannot be written: {error}. Make room for it, and continue with "
            "--resume, or name another one: --on-error dead-letter=FILE"
        )

    def join(self, producer: Any) -> None:
        """Do nothing: the file's length is in the committed position."""


class DeadLetterTopic:
    """Sends bad rows as records: the bytes as value; source, row and reason as headers.

    If the load is resumed, rows may come twice, unless they are part of the load's transactions.

    Args:
        producer: Another one than the load's, which numbers the records of the load; None: the load's own, by `join`.
        topic: The topic of bad rows.
    """

    stops = False

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._is_own = producer is not None
        self._topic = topic

    def put(self, row: BadRow) -> None:
        headers = [("source", row.source.encode()), ("row", b"%d" % (row.row + 1)), ("reason", row.reason.encode())]
        self._producer.send(self._topic, row.data, headers=headers)

    def position(self) -> int:
        return 0

    def rewind(self, position: int) -> None:
        """Do nothing: what is in the topic stays there, or its transaction is aborted."""

    def sync(self, timeout_s: float | None = None) -> None:
        if self._is_own:  # else the commit waits for it
            self._producer.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        if self._is_own:
            self._producer.close(timeout_s)

    def join(self, producer: Any) -> None:
        if not self._is_own:
            self._producer = producer


def dead_letter(row: BadRow) -> bytes:
    """Return a bad row as a line of JSON."""
    record: dict[str, Any] = {"source": row.source, "row": row.row + 1, "reason": row.reason}
    if row.line is not None:
        record["line"] = row.line
    try:
        record["value"] = row.data.decode()
    except UnicodeDecodeError:
        record["value_base64"] = base64.b64encode(row.data).decode()
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _shown(data: bytes) -> str:
    return f"its bytes are {data[:80]!r}" + (f" and {len(data) - 80} more" if len(data) > 80 else "")
