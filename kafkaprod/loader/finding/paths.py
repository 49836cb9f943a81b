"""Find the files that names, patterns and directories stand for.

What cannot be looked at is an error, unlike in `glob` and `Path.rglob`: a load without it would seem complete.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self

from kafkaprod.loader.finding.delta_tables import LOG, is_delta_table
from kafkaprod.loader.finding.folders import is_hidden
from kafkaprod.loader.finding.iceberg_tables import METADATA, is_iceberg_table
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.pipes import STDIN
from kafkaprod.loader.opening.remote.access import Access
from kafkaprod.loader.opening.remote.addresses import identity, is_address
from kafkaprod.loader.positions import manifest_file
from kafkaprod.text import counted

# The folders in which tables keep their logs.
_LOGS: Final = {
    LOG: "a Delta table: name this folder itself, or read it with deltalake",
    ".hoodie": "a Hudi table: read its current snapshot with a library for Hudi",
    "_spark_metadata": "the output of a Spark stream, which lists its committed files in _spark_metadata: read it with "
    "a library that knows this list",
}


@dataclass(frozen=True, slots=True)
class Listing:
    """Holds which files folders and patterns had when a load found its inputs.

    Attributes:
        names: The folders and patterns, as the user gave them.
        paths: The files that were there.
        addresses: The folders and patterns of stores.
        access: How to ask their servers.
    """

    names: tuple[str, ...] = ()
    paths: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = field(default=(), repr=False)
    access: Access = field(default_factory=Access, repr=False)

    @classmethod
    def of(cls, names: Iterable[str], access: Access | None = None) -> Self:
        """Return what is there now; objects are added by `with_files`. Raises as `find_paths`.

        Args:
            names: As the user gave them.
            access: How to ask the servers of objects.

        A Delta or Iceberg table is left out: a load has one version of it, and what comes meanwhile is another's.
        """
        names = tuple(names)
        access = access or Access()
        lists = tuple(
            name
            for name in names
            if name != STDIN
            and not is_address(name)
            and not is_delta_table(name)
            and not is_iceberg_table(name)
            and (os.path.isdir(name) or not os.path.lexists(name))
        )
        addresses = tuple(name for name in names if is_address(name) and _is_listed(name, access))
        return cls(lists, frozenset(path for path, _ in find_paths(lists)), addresses, access)

    def with_files(self, paths: Iterable[str]) -> Self:
        """Return one that has other files, too."""
        return replace(self, paths=self.paths.union(paths))

    def check(self, known: Collection[str] = ()) -> None:
        """Compare it with what is there when all of its rows were sent. Files that are gone do not matter.

        Args:
            known: Absolute paths of other files of the load.

        Raises:
            LoadError: A file came meanwhile: its rows would be missing from a load that seems complete.
        """
        came = []
        for name in self.names:
            found = _files_of(name) if os.path.isdir(name) else _matches(name)
            came += [path for path in found if path not in self.paths and os.path.abspath(path) not in known]
        for address in self.addresses:
            from kafkaprod.loader.finding.object_folders import list_objects

            found = [identity(place) for place, _, _ in list_objects(address, self.access)]
            came += [path for path in found if path not in self.paths]
        if came:
            raise LoadError(
                f"{counted(len(came), 'file')} came while the input was read, {came[0]} first: what came is not in the "
                "topic, so the load is not complete. Move it elsewhere, end this load with --resume, and load it by "
                "itself"
            )


def find_paths(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths that names stand for: files of a directory and matches of a pattern by name.

    Yields:
        A path, and the part of it that the user did not name, whose folders may be named for columns.

    Raises:
        LoadRefusedError: Nothing matches a pattern, or a directory or a link in it cannot be followed.
    """
    for name in names:
        if name == STDIN:
            yield name, ""
        elif os.path.isdir(name):
            root = Path(name)
            _check_are_in_no_table([os.path.dirname(os.path.abspath(name))])
            for path in map(Path, _files_of(name)):
                yield str(path), str(path.relative_to(root))
        elif os.path.lexists(name) or not glob.has_magic(name):
            yield name, ""
        else:
            parts = [part for part in name.split(os.sep) if part]
            named = next(i for i, part in enumerate(parts) if glob.has_magic(part))
            found = _matches(name)
            if not found:
                raise LoadRefusedError(f"no file matches {name}")
            _check_are_in_no_table({os.path.dirname(os.path.abspath(path)) for path in found})
            yield from ((path, os.sep.join(path.strip(os.sep).split(os.sep)[named:])) for path in found)


def _check_are_in_no_table(directories: Iterable[str]) -> None:
    """Refuse parts of a table, as `orders/day=1` and `orders/*.parquet` are: only the whole has a log."""
    for path in {path for each in directories for path in (Path(each), *Path(each).parents)}:
        _check_is_no_table(str(path), {name for name in (*_LOGS, METADATA) if (path / name).is_dir()})


def _check_is_no_table(directory: str, names: set[str]) -> None:
    """Refuse a folder whose files are rows only together with a log: some are of old versions, or deleted."""
    kind = next((_LOGS[name] for name in _LOGS if name in names), None)
    if kind is None and METADATA in names and is_iceberg_table(directory):
        kind = "an Iceberg table: name this folder itself, or read it with pyiceberg"
    if kind is not None:
        raise LoadRefusedError(
            f"{directory} is {kind}, or with Spark, and send it with send_table. Its files alone would bring rows "
            "that were deleted or never committed"
        )


def _files_of(directory: str) -> list[str]:
    files = sorted(map(Path, _files_below(str(Path(directory)), ())))
    return [str(path) for path in files if not path.name.endswith(manifest_file.SUFFIX)]


def _files_below(directory: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield the files of a directory and those below it, without hidden ones; links are followed."""
    identity = _identity(directory)
    if identity in above:
        raise LoadRefusedError(
            f"{directory} is a link to a directory above it: its files would be loaded again and again"
        )
    entries = _entries(directory)
    _check_is_no_table(directory, {entry.name for entry in entries})
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if _is_dir(entry):
            yield from _files_below(entry.path, (*above, identity))
        elif _is_file(entry.path):
            yield entry.path


def _matches(pattern: str) -> list[str]:
    root = os.sep if os.path.isabs(pattern) else ""
    parts = [part for part in pattern.split(os.sep) if part]
    return sorted({path for path in _expanded(root, parts, ()) if _is_file(path)})


def _expanded(directory: str, parts: list[str], above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield what matches the parts of a pattern below a directory; "" is the working directory."""
    if not parts:
        yield directory
        return
    part, rest = parts[0], parts[1:]
    if not glob.has_magic(part):
        path = os.path.join(directory, part)
        if os.path.isdir(path) if rest else os.path.lexists(path):
            yield from _expanded(path, rest, ())
        return
    if part == "**":
        identity = _identity(directory or os.curdir)
        if identity in above:
            return
        yield from _expanded(directory, rest or ["*"], ())
        above = (*above, identity)
    for entry in _entries(directory or os.curdir):
        path = os.path.join(directory, entry.name)
        if part == "**":
            if not is_hidden(entry.name) and _is_dir(entry):
                yield from _expanded(path, parts, above)
        elif _fits(entry.name, part) and (not rest or _is_dir(entry)):
            yield from _expanded(path, rest, ())


def _fits(name: str, part: str) -> bool:
    return fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        raise LoadRefusedError(
            f"{directory} cannot be listed: {error.strerror}. Its files would be left out"
        ) from error


def _identity(directory: str) -> tuple[int, int]:
    try:
        status = os.stat(directory)
    except OSError as error:
        raise LoadRefusedError(
            f"{directory} cannot be listed: {error.strerror}. Its files would be left out"
        ) from error
    return status.st_dev, status.st_ino


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        raise LoadRefusedError(f"{entry.path} cannot be looked at: {error.strerror}") from error


def _is_file(path: str) -> bool:
    """Return whether it is a file; a link to nothing is refused."""
    if os.path.isfile(path):
        return True
    if os.path.islink(path) and not os.path.exists(path):
        raise LoadRefusedError(f"{path} is a link to {os.readlink(path)}, which cannot be found: is a disk missing?")
    if os.path.exists(path) and not os.path.isdir(path):
        raise LoadRefusedError(
            f"{path} is neither a file nor a folder: a load of a folder or a pattern would leave it out. Name a pipe "
            "itself, and move other things elsewhere"
        )
    return False


def _is_listed(address: str, access: Access) -> bool:
    from kafkaprod.loader.finding.object_folders import is_listed  # what reads objects is loaded for addresses alone

    return is_listed(address, access)
