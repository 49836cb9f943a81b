"""Find the files that names, patterns and directories stand for.

What cannot be looked at is an error, unlike in `glob` and `Path.rglob`: a load without it would seem complete.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from kafkaprod.loader import manifest_file
from kafkaprod.loader.errors import LoadRefusedError
from kafkaprod.loader.pipes import STDIN


def find_paths(names: Sequence[str]) -> Iterator[str]:
    """Yield the paths that names stand for: files of a directory and matches of a pattern by name.

    Raises:
        LoadRefusedError: Nothing matches a pattern, or a directory or a link in it cannot be followed.
    """
    for name in names:
        if name == STDIN:
            yield name
        elif os.path.isdir(name):
            files = sorted(map(Path, _files_below(str(Path(name)), ())))
            yield from (str(path) for path in files if not path.name.endswith(manifest_file.SUFFIX))
        elif os.path.lexists(name) or not glob.has_magic(name):
            yield name
        else:
            yield from _matches(name)


def _files_below(directory: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Yield the files of a directory and those below it, without hidden ones; links are followed."""
    identity = _identity(directory)
    if identity in above:
        raise LoadRefusedError(
            f"{directory} is a link to a directory above it: its files would be loaded again and again"
        )
    for entry in _entries(directory):
        is_hidden = entry.name.startswith((".", "_"))
        if _is_dir(entry):
            yield from _files_below(entry.path, (*above, identity))
        elif not is_hidden and _is_file(entry.path):
            yield entry.path


def _matches(pattern: str) -> list[str]:
    root = os.sep if os.path.isabs(pattern) else ""
    parts = [part for part in pattern.split(os.sep) if part]
    found = sorted({path for path in _expanded(root, parts, ()) if _is_file(path)})
    if not found:
        raise LoadRefusedError(f"no file matches {pattern}")
    return found


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
            if not entry.name.startswith(".") and _is_dir(entry):
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
    return False
