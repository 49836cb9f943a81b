"""Whether a log directory can be used: one of several that fails is given up, and the broker continues with the others.

A directory fails with an error that says that its disk is gone, not with one that passes, such as a full disk. What
notices is the disk of its logs, `WatchedDisk`; the logs look at the health before each append and each read. Given up
is given up: the directory is used again when the broker starts again. Thread-safe: the failure is set once.
"""

from __future__ import annotations

import errno
import logging
from types import TracebackType

from kafkaprod.broker.storage.errors import LogDirectoryFailedError
from kafkaprod.storage.disk import Disk, LogFile
from kafkaprod.structs import BytesLike

logger = logging.getLogger(__name__)

_FAILURES = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN})


class DirectoryHealth:
    """The health of one log directory.

    Attributes:
        failure: Why it cannot be used; None if it can.
    """

    __slots__ = ("failure", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None

    def check(self) -> None:
        """Raise LogDirectoryFailedError if the directory cannot be used."""
        if self.failure is not None:
            raise LogDirectoryFailedError(f"log directory {self.path} is offline: {self.failure}")

    def note(self, error: OSError) -> None:
        """Take note of an error of the disk; give the directory up if it is one that does not pass."""
        if error.errno in _FAILURES and self.failure is None:
            self.failure = str(error)
            logger.error(
                "log directory %r failed: %s. Its partitions answer KAFKA_STORAGE_ERROR until the broker starts again",
                self.path,
                str(error),
            )


ALWAYS_USABLE = DirectoryHealth("")
"""The health of a directory whose failures stay with the partition that meets them: a broker's only or first one."""


class WatchedDisk(Disk):
    """The disk of one log directory: another one, whose errors are noted."""

    def __init__(self, disk: Disk, health: DirectoryHealth) -> None:
        self._disk = disk
        self._watch = _Watch(health)

    def create(self, path: str) -> LogFile:
        """See `Disk`, as for all that follows."""
        with self._watch:
            return self._disk.create(path)

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        with self._watch:
            self._disk.mkdir(path)

    def pwrite(self, file: LogFile, data: BytesLike, position: int) -> int:
        """Write at `position`."""
        with self._watch:
            return self._disk.pwrite(file, data, position)

    def truncate(self, file: LogFile, size: int) -> None:
        """Cut or extend a file."""
        with self._watch:
            self._disk.truncate(file, size)

    def fdatasync(self, file: LogFile) -> None:
        """Sync a file."""
        with self._watch:
            self._disk.fdatasync(file)

    def sync_dir(self, path: str) -> None:
        """Sync a directory."""
        with self._watch:
            self._disk.sync_dir(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory."""
        with self._watch:
            self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        with self._watch:
            self._disk.unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove a directory."""
        with self._watch:
            self._disk.rmdir(path)


class _Watch:
    """Notes the errors of a disk on their way; of any number of threads."""

    def __init__(self, health: DirectoryHealth) -> None:
        self._health = health

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            self._health.note(error)
