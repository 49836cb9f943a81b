"""Find, read, replace and lock the file of a load's manifest.

The file is replaced as a whole (written beside, fsync, rename, fsync of the directory), so that a reader finds the old
one or the new one. Directories may be shared with other users: no link is followed, what has the name of a file to be
written is removed, and all files are readable by their owner only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kafkaprod.loader.opening.errors import LoadError, LoadIsLockedError
from kafkaprod.loader.opening.pipes import STDIN, is_pipe_name
from kafkaprod.loader.opening.remote.addresses import identity, is_address, path_of
from kafkaprod.loader.positions.manifest import Manifest

SUFFIX: Final = ".load.json"
_OWNER_ONLY: Final = 0o600
MOST_STEM: Final = 120  # characters; a file name has at most 255 bytes
_OPENING: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ManifestFile:
    """The file of a manifest. One process at a time may work at a load: see `locked`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def for_load(cls, names: Sequence[str], topic: str, state_dir: str | None) -> ManifestFile:
        """Return the file that belongs to some inputs and a topic: in `state_dir`, or beside the first input.

        Where the directory of the input cannot be written, or the input is on another machine, it is in
        $XDG_STATE_HOME/kafkaprod. The name does not depend
        on which files a directory has or a pattern matches: with one file more it is still the same load.

        Args:
            names: The names of the inputs, as the user gave them: files, patterns, directories or `-`.
            topic: The load's topic.
            state_dir: Is created if it is missing.

        Raises:
            LoadError: The first input is a pipe and there is no `state_dir`.
        """
        paths = sorted(
            identity(name) if is_address(name) else name if name == STDIN else os.path.abspath(name) for name in names
        )
        digest = hashlib.sha256(b"\n".join(map(os.fsencode, paths))).hexdigest()
        is_remote = is_address(names[0])
        first = Path(path_of(names[0]) if is_remote else os.path.abspath(names[0]))
        stem = "stdin" if names[0] == STDIN else re.sub(r"[*?\[\]]", "_", first.name)
        name = f".{stem}.{digest[:8]}.{topic}{SUFFIX}"
        if state_dir is not None:
            return cls(Path(state_dir) / name)
        if is_pipe_name(names[0]):
            raise LoadError(
                f"{'stdin' if names[0] == STDIN else names[0]} is a pipe: to resume such a load name a place for its "
                "manifest with --state DIR, in every run, and give the same bytes again"
            )
        if is_remote:
            return cls(_state_home() / f"{stem[:MOST_STEM] or 'objects'}.{digest[:16]}.{topic}{SUFFIX}")
        beside = (first if first.is_dir() else _existing(first.parent)) / name
        elsewhere = _state_home() / f"{stem}.{digest[:16]}.{topic}{SUFFIX}"
        for path in (beside, elsewhere):
            if os.path.lexists(path):
                return cls(path)
        return cls(beside if os.access(beside.parent, os.W_OK | os.X_OK, effective_ids=True) else elsewhere)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes off this load: two that begin it would send each row twice.

        Raises:
            LoadIsLockedError: Another process works at it.
            LoadError: The directory cannot be written.
        """
        path = self.path.with_name(self.path.name + ".lock")
        descriptor = self._open_lock(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)

    def _open_lock(self, path: Path) -> int:
        while True:
            try:
                _make_directory(self.path.parent)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _OPENING, _OWNER_ONLY)
            except OSError as error:
                raise self._cannot_be_written(error) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise LoadIsLockedError(f"another process works at this load: it has locked {path}") from error
            except OSError:  # a file system without locks: it works unless two processes are started
                return descriptor
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)  # its former owner removed it after we opened and before we locked it

    def read(self) -> Manifest | None:
        """Return the manifest; None if there is no file.

        Raises:
            LoadError: It cannot be read, is damaged, or is a link or a pipe.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | _OPENING)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LoadError(f"the manifest {self.path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise LoadError(f"the manifest {self.path} is not a file")
        with open(descriptor, encoding="utf-8") as file:
            try:
                return Manifest.from_json(file.read())
            except (OSError, ValueError) as error:
                raise LoadError(
                    f"the manifest {self.path} is damaged: {error}. Start over with --restart: records may come twice"
                ) from error

    def write(self, manifest: Manifest) -> None:
        """Replace the file; it is on the disk when this returns.

        Raises:
            LoadError: The disk is full, the directory cannot be written, or what would be written could not be read
                again; the old file is as it was.
        """
        text = manifest.to_json()
        try:
            Manifest.from_json(text)
        except ValueError as error:
            raise LoadError(
                f"the manifest {self.path} is left as it was, because what would replace it is damaged: {error}. "
                "--resume continues the load from there"
            ) from error
        self._replace(text.encode())

    def content(self) -> bytes | None:
        """Return the file as it is, whatever is in it; None if there is none that can be read."""
        try:
            with open(os.open(self.path, os.O_RDONLY | _OPENING), "rb") as file:
                return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
        except OSError:
            return None

    def put_back(self, content: bytes | None) -> None:
        """Have the file as it was before; None: there was none."""
        with contextlib.suppress(OSError, LoadError):
            if content is None:
                self.path.unlink()
            else:
                self._replace(content)

    def _replace(self, content: bytes) -> None:
        beside = self.path.with_name(self.path.name + ".new")
        try:
            _make_directory(self.path.parent)
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPENING, _OWNER_ONLY)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.replace(beside, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise self._cannot_be_written(error) from error

    def _cannot_be_written(self, error: OSError) -> LoadError:
        return LoadError(
            f"the manifest {self.path} cannot be written: {error}. Name a place for it with --state DIR, or load "
            "without one: --no-manifest"
        )


def _make_directory(directory: Path) -> None:
    """Make a directory, and those above it that are missing, and have them on the disk: a power cut must not take them
    with what will be in them.
    """
    missing = [path for path in (directory, *directory.parents) if not path.is_dir()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        with contextlib.suppress(PermissionError):  # one above may be made for writing only
            sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Return when the names in a directory are on the disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _existing(directory: Path) -> Path:
    """Return the directory or the nearest one above it that exists: the names of some may be patterns."""
    return next(path for path in (directory, *directory.parents) if path.is_dir())


def _state_home() -> Path:
    """Return the directory for state of this package, by the XDG base directory specification 0.8."""
    given = os.environ.get("XDG_STATE_HOME", "")
    home = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~")) / ".local" / "state"
    return home / "kafkaprod"
