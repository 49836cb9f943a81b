"""The only module of the log that changes files: one seam for tests to record calls or inject faults.

`Disk` has the system calls, one method each; subclasses in tests override them. What is built from several calls
(`write_at`, `replace_file`) lives in functions below, so that an injected fault hits a real sequence of calls.
All paths are absolute strings. No link is followed in their last part: one that another program left in the data
directory would make the broker write elsewhere. Errors are OSError as the system gives them. Thread-safe: no state.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from kafkaprod.errors import ConfigError
from kafkaprod.structs import BytesLike

_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_FILE_MODE = 0o600
_DIR_MODE = 0o700
_SMALL_FILE_BYTES = 4096


class Disk:
    """File operations of the operating system."""

    def create(self, path: str) -> LogFile:
        """Open `path` for reading and writing, creating it if missing; its content is kept."""
        return LogFile(os.open(path, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, _FILE_MODE), path)

    def mkdir(self, path: str) -> None:
        """Make a directory only its owner can enter."""
        os.mkdir(path, _DIR_MODE)

    def pwrite(self, file: LogFile, data: BytesLike, position: int) -> int:
        """Write at `position`; return the bytes written, possibly fewer than given."""
        return os.pwrite(file.fd, data, position)

    def truncate(self, file: LogFile, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        os.ftruncate(file.fd, size)

    def fdatasync(self, file: LogFile) -> None:
        """Return when the file's bytes and size are on the disk. Never call it again after it failed."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(file.fd)
        elif hasattr(fcntl, "F_FULLFSYNC"):  # macOS, whose fsync() leaves the bytes in the cache of the disk
            fcntl.fcntl(file.fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(file.fd)

    def sync_dir(self, path: str) -> None:
        """Return when the directory's entries are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _OPEN_FLAGS)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target` atomically."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; one that is missing is no error, so that an interrupted delete can be repeated."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)


class UnsyncedDisk(Disk):
    """Leaves it to the operating system when bytes reach the disk: what a killed process wrote stays.

    A journal notes what would be on the disk, so that a test can take the rest away, as a power cut does.
    """

    def __init__(self, journal: str | None = None) -> None:
        """Begin, or continue, a journal.

        Args:
            journal: The file that gets a line "size, tab, path" for each sync; None for none.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _OPEN_FLAGS
        self._journal = None if journal is None else LogFile(os.open(journal, flags, _FILE_MODE), journal)

    def fdatasync(self, file: LogFile) -> None:
        """Note how long the file is."""
        if self._journal is not None:
            os.write(self._journal.fd, f"{os.fstat(file.fd).st_size}\t{file.path}\n".encode())

    def sync_dir(self, path: str) -> None:
        """Do nothing."""

    def rename(self, source: str, target: str) -> None:
        """Rename; a file that takes the place of a log is whole."""
        super().rename(source, target)
        if self._journal is not None and target.endswith(".log"):
            os.write(self._journal.fd, f"{os.stat(target).st_size}\t{target}\n".encode())


class LogFile:
    """An open file that closes itself when the last reference goes.

    Readers hold a reference for as long as they use the descriptor, so that a deleted segment's descriptor number
    cannot be given to another file under a `sendfile`.
    """

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def fileno(self) -> int:
        """The descriptor, valid while this object lives."""
        return self.fd

    def __del__(self) -> None:
        try:
            os.close(self.fd)
        except (AttributeError, OSError, TypeError):  # half-made object, or interpreter shutdown
            return


def open_for_read(path: str) -> LogFile:
    """Open an existing file for reading only."""
    return LogFile(os.open(path, os.O_RDONLY | _OPEN_FLAGS), path)


def read_file(path: str) -> bytes:
    """Return the content of an existing file."""
    fd = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
    try:  # without a file object: a broker reads ten thousand small files at its start
        content = os.read(fd, _SMALL_FILE_BYTES)
        if len(content) < _SMALL_FILE_BYTES:
            return content
        with open(fd, "rb", closefd=False) as file:
            return content + file.read()
    finally:
        os.close(fd)


def list_files(directory: str) -> dict[str, int]:
    """Return the size in bytes of each file of a directory.

    Raises:
        OSError: ELOOP, there is a link among them.
    """
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise OSError(errno.ELOOP, "a data directory must not hold links", entry.path)
            if entry.is_file(follow_symlinks=False):
                found[entry.name] = entry.stat(follow_symlinks=False).st_size
    return found


def is_directory(path: str) -> bool:
    """Whether there is a directory.

    Raises:
        OSError: ELOOP, there is a link.
    """
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "a data directory must not hold links", path)
    return os.path.isdir(path)


def check_owner(path: str) -> None:
    """Refuse a data directory that others can put files into.

    Raises:
        ConfigError: It belongs to another user, or every user may write to it.
    """
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"data directory {path} belongs to user {status.st_uid}, but this process runs as {os.geteuid()}: "
            "use another one, or change its owner"
        )
    if status.st_mode & stat.S_IWOTH:
        raise ConfigError(
            f"data directory {path} has mode {stat.S_IMODE(status.st_mode):04o}: every user may write to it. "
            f"Use another one, or: chmod 700 {path}"
        )


def make_directory(disk: Disk, path: str) -> None:
    """Make a directory, and those above it that are missing, by the umask; all of them are on the disk then.

    Raises:
        OSError: The disk refused.
    """
    missing = [path]
    while not os.path.isdir(above := os.path.dirname(missing[-1])):
        missing.append(above)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    disk.mkdir(path)
    for made in missing:
        with contextlib.suppress(PermissionError):  # the one above may be one that this process can only write to
            disk.sync_dir(os.path.dirname(made))


def write_at(disk: Disk, file: LogFile, data: BytesLike, position: int) -> None:
    """Write all of `data` at `position`, going on after short writes.

    Raises:
        OSError: The write failed; a part of the data may be in the file.
    """
    view = memoryview(data)
    while len(view):
        written = disk.pwrite(file, view, position)
        if written <= 0:
            raise OSError(f"write to {file.path} at {position} made no progress: {len(view)} bytes left")
        view = view[written:]
        position += written


def update_file(disk: Disk, path: str, content: BytesLike) -> None:
    """Give a derived file this content: one that has it is left alone, one that continues behind it is cut.

    An index that was in use when its process was killed is 10 MiB long, nearly all zeros behind its entries.
    """
    try:
        file = LogFile(os.open(path, os.O_RDWR | _OPEN_FLAGS), path)
    except FileNotFoundError:
        replace_file(disk, path, content)
        return
    spare_bytes = os.fstat(file.fd).st_size - len(content)
    if spare_bytes < 0 or os.pread(file.fd, len(content), 0) != content:
        replace_file(disk, path, content)
    elif spare_bytes:
        disk.truncate(file, len(content))


def replace_file(disk: Disk, path: str, content: BytesLike) -> None:
    """Replace a derived file as a whole, unsynced: after a crash it is old, new or fails its own check."""
    _write_aside(disk, path, content, sync=False)
    disk.rename(path + ".tmp", path)


def replace_file_durably(disk: Disk, path: str, content: BytesLike) -> None:
    """Replace a file that holds truth: after a crash it is the old or the new one, never a mix.

    Order: write aside, sync the file, rename, sync the directory.
    """
    _write_aside(disk, path, content, sync=True)
    disk.rename(path + ".tmp", path)
    disk.sync_dir(os.path.dirname(path))


def _write_aside(disk: Disk, path: str, content: BytesLike, *, sync: bool) -> None:
    file = disk.create(path + ".tmp")
    disk.truncate(file, 0)
    write_at(disk, file, content, 0)
    if sync:
        disk.fdatasync(file)
