"""The manifest: how far a load has come, on disk, so that it can go on after anything.

It maps a position of the input (source, row, byte) to what the log of each partition has for certain. It also has the
producer id, which the load keeps all its life: see `recovery`. The file is replaced as a whole (written beside, fsync,
rename, fsync of the directory), so that a reader finds the old or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kafkaprod.loader.errors import LoadError
from kafkaprod.loader.pipes import STDIN, is_pipe_name

FORMAT_VERSION: Final = 1
SUFFIX: Final = ".load.json"


@dataclass(slots=True)
class Position:
    """The first row that is not known to be in the log.

    Attributes:
        source: Number of the input.
        row: In it, from 0.
        offset: Where it begins in the input's text.
        rows_before: Rows of all inputs before this one.
    """

    source: int = 0
    row: int = 0
    offset: int = 0
    rows_before: int = 0


@dataclass(slots=True)
class PartitionState:
    """What is certain about a partition.

    Attributes:
        rows: So many rows of the input before the manifest's position belong here.
        sent: So many rows of the load stand in the log before `offset`; not fewer than `rows`.
        offset: Where the rest of the log begins.
    """

    rows: int
    sent: int
    offset: int


@dataclass(slots=True)
class Manifest:
    """See the module.

    Attributes:
        topic: Where to; with its id, where brokers tell.
        cluster_id: Of the cluster; None where brokers do not tell.
        producer_id: Of the load, with its epoch; -1 for a load that is never resumed.
        partition_count: That rows are spread over, also if the topic gets more.
        run_rows: Rows without a key go in runs of so many to one partition.
        options: What decides which records a row becomes.
        inputs: What is loaded.
        position: See Position.
        partitions: By number.
        refused: (number of the input, row, why) of rows that a broker refused.
        batch_bytes: Size of batches where the topic takes less than the options say; None: as they say.
        counts: Rows sent, bad rows, bytes.
        dead_letter_bytes: Length of the dead-letter file at `position`.
        is_done: Nothing is left.
    """

    topic: str
    topic_id: str | None
    cluster_id: str | None
    producer_id: int
    producer_epoch: int
    partition_count: int
    run_rows: int
    options: dict[str, Any]
    inputs: list[dict[str, Any]]
    position: Position
    partitions: dict[int, PartitionState]
    refused: list[tuple[int, int, str]] = field(default_factory=list)
    batch_bytes: int | None = None
    sent_count: int = 0
    bad_count: int = 0
    sent_bytes: int = 0
    dead_letter_bytes: int = 0
    is_done: bool = False

    def to_json(self) -> str:
        """As it is written."""
        return json.dumps({"version": FORMAT_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises ValueError, KeyError, TypeError for anything that `to_json` did not write."""
        data = json.loads(text)
        if data.pop("version") != FORMAT_VERSION:
            raise ValueError("it was written by another version")
        data["position"] = Position(**data["position"])
        data["partitions"] = {int(k): PartitionState(**v) for k, v in data["partitions"].items()}
        data["refused"] = [(source, row, why) for source, row, why in data["refused"]]
        return cls(**data)


class ManifestFile:
    """Where a manifest is. One process at a time: see `locked`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def for_load(cls, names: Sequence[str], topic: str, state_dir: str | None) -> ManifestFile:
        """The file that belongs to some inputs and a topic: in `state_dir`, or beside the first input.

        It does not depend on which files there are in a directory, or match a pattern: a load must not seem to be
        another one, which begins anew, because a file came in between.

        Args:
            names: Of the inputs, as the user gave them: files, patterns, directories or `-`.
            topic: Where to.
            state_dir: Made if missing.

        Raises:
            LoadError: The first input is a pipe and there is no `state_dir`.
        """
        paths = sorted(name if name == STDIN else os.path.abspath(name) for name in names)
        digest = hashlib.sha256(b"\n".join(map(os.fsencode, paths))).hexdigest()[:8]
        first = Path(os.path.abspath(names[0]))
        stem = "stdin" if names[0] == STDIN else re.sub(r"[*?\[\]]", "_", first.name)
        if state_dir is None and is_pipe_name(names[0]):
            raise LoadError(
                f"{'stdin' if names[0] == STDIN else names[0]} is a pipe: to resume such a load name a place for its "
                "manifest with --state DIR, in every run, and give the same bytes again"
            )
        directory = Path(state_dir) if state_dir is not None else first if first.is_dir() else _existing(first.parent)
        return cls(directory / f".{stem}.{digest}.{topic}{SUFFIX}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes off this load: two that begin it would send each row twice.

        Raises:
            LoadError: Another process works at it, or the directory cannot be written.
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
                self.path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise self._cannot_be_written(error) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise LoadError(f"another process works at this load: it has locked {path}") from error
            except OSError:  # a file system without locks: it works without, if nobody starts two
                return descriptor
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)  # whoever had it removed it between our opening and locking it

    def read(self) -> Manifest | None:
        """The manifest; None if there is none.

        Raises:
            LoadError: It cannot be read.
        """
        try:
            return Manifest.from_json(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LoadError(f"the manifest {self.path} cannot be read: {error}") from error

    def write(self, manifest: Manifest) -> None:
        """Replace the file; it is on the disk when this returns.

        Raises:
            LoadError: The disk is full, the directory cannot be written; the old file is as it was.
        """
        beside = self.path.with_name(self.path.name + ".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(beside, "w", encoding="utf-8") as file:
                file.write(manifest.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
            self._sync_directory()
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise self._cannot_be_written(error) from error

    def remove(self) -> None:
        """There is nothing to go on from."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _cannot_be_written(self, error: OSError) -> LoadError:
        return LoadError(
            f"the manifest {self.path} cannot be written: {error}. Name a place for it with --state DIR, or load "
            "without one: --no-manifest"
        )

    def _sync_directory(self) -> None:
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _existing(directory: Path) -> Path:
    """The directory or the nearest one above it that exists: the names of some may be patterns."""
    return next(path for path in (directory, *directory.parents) if path.is_dir())
