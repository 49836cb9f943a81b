"""Records how a program changes files, and says after each call what a power cut could leave of them.

The broker's `Disk`, the loader and the commands all change files by the same functions of `os`; those are recorded for
everything below one directory, and syncs are noted instead of done. What a power cut leaves (the model of ALICE):

    names    those at the last sync of their directory, and the first ones of the changes since then; a rename is one
             change. With `reorders`, which no journal of a file system does, any one change, or all but one
    bytes    those at the last sync of the file, or those of now

Use it around what is to be tested, then look at each of `images`, and at those of `last_images`: what the program has
been answered, when it was answered, must be in all of them.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

Image = Mapping[str, bytes | None]
"""Content of each file below the directory by its path from there; None: a directory."""
Change = Mapping[str, int | None]
"""The inode that names of a directory have from now on; None: it has the name no more."""


MOST_BYTES = 1 << 16
"""Of a file."""


class Call(NamedTuple):
    """A call that changed files: `path` is below the recorded directory, after a rename."""

    name: str
    path: str


@dataclass
class _Node:
    """A file or a directory, which stays open so that no other gets its inode.

    Attributes:
        durable: The bytes at the last sync.
        names: The inodes of a directory's names at its last sync.
        changes: How the names changed since then.
        seen: The names at the last look.
        now: The bytes at the last look at them.
        stamp: The size and the time of the file then.
    """

    descriptor: int
    is_directory: bool
    has_content: bool
    durable: bytes = b""
    names: dict[str, int] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    now: bytes = b""
    stamp: tuple[int, int] = (0, 0)

    def content(self) -> bytes:
        """The bytes of now."""
        if not self.has_content:
            return b""
        status = os.fstat(self.descriptor)
        assert status.st_size <= MOST_BYTES, f"{status.st_size} bytes: all versions of all files are kept"
        if (stamp := (status.st_size, status.st_mtime_ns)) != self.stamp:
            self.now, self.stamp = os.pread(self.descriptor, status.st_size, 0), stamp
        return self.now


class PowerCuts:
    """See the module docstring; made by `power_cuts`.

    Attributes:
        calls: The calls, in order.
        images: What a power cut could have left at any time, without repetitions.
    """

    def __init__(
        self, root: Path, *, reorders: bool = False, has_synced: bool = True, lost: tuple[str, ...] = ()
    ) -> None:
        self.calls: list[Call] = []
        self.images: list[Image] = []
        self.last_images: list[Image] = []
        self._root = os.path.realpath(root)
        self._reorders = reorders
        self._lost = lost
        self._nodes: dict[int, _Node] = {}
        self._lock = threading.RLock()
        self._contents: dict[bytes, bytes] = {}  # each content once
        self._known: set[int] = set()
        self._look()
        for node in self._nodes.values():
            node.names, node.changes = dict(node.seen), []
            node.durable = node.content() if has_synced else b""

    def names(self, *wanted: str) -> list[str]:
        """The last parts of the paths of some kinds of calls, in order."""
        return [os.path.basename(call.path) for call in self.calls if call.name in wanted]

    def close(self) -> None:
        """Look for the last time, and close what was held open."""
        self._note("end", self._root)
        self.calls.pop()
        for node in self._nodes.values():
            os.close(node.descriptor)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """A function of `os` that is recorded."""

        def recorded(*arguments: Any, **options: Any) -> Any:
            path = arguments[1] if name in ("rename", "replace") else arguments[0]
            path = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(os.fspath(path))
            if options or not self._is_below(path):
                return real(*arguments, **options)
            with self._lock:
                self._look()
                if name in ("fsync", "fdatasync"):
                    self._sync(arguments[0])
                    result = None
                else:
                    result = real(*arguments)
                if isinstance(arguments[0], int):  # two writes may have the same time
                    self._nodes[os.fstat(arguments[0]).st_ino].stamp = (0, 0)
                self._note(name, path)
            return result

        return recorded

    def _is_below(self, path: str) -> bool:
        return os.path.realpath(os.path.dirname(path)).startswith(self._root) or path == self._root

    def _sync(self, descriptor: int) -> None:
        node = self._nodes[os.fstat(descriptor).st_ino]
        if node.is_directory:
            node.names, node.changes = dict(node.seen), []
        else:
            node.durable = node.content()

    def _note(self, name: str, path: str) -> None:
        self._look()
        self.calls.append(Call(name, os.path.relpath(path, self._root)))
        self.last_images = []
        for image in self._images_now():
            self.last_images.append(image)
            key = hash(frozenset(image.items()))
            if key not in self._known:
                self._known.add(key)
                self.images.append(image)

    def _look(self) -> None:
        """See which names came, went and moved since the last look: in one change, as the calls are recorded."""
        waiting = [self._root]
        while waiting:
            path = waiting.pop()
            names = {}
            for entry in os.scandir(path):
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                    continue
                names[entry.name] = status.st_ino
                self._node(entry.path, status.st_ino)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
            node = self._node(path, os.stat(path).st_ino)
            if names != node.seen:
                gone: Change = dict.fromkeys(node.seen.keys() - names.keys())
                come = {name: inode for name, inode in names.items() if node.seen.get(name) != inode}
                node.changes.append({**gone, **come})
                node.seen = names

    def _node(self, path: str, inode: int) -> _Node:
        if inode not in self._nodes:
            has_content = not os.path.isdir(path) and not any(part in path for part in self._lost)
            self._nodes[inode] = _Node(os.open(path, os.O_RDONLY), os.path.isdir(path), has_content)
        return self._nodes[inode]

    # -- images --------------------------------------------------------------------------------------------------------

    def _images_now(self) -> Iterator[Image]:
        root = os.stat(self._root).st_ino
        most = max(len(node.changes) for node in self._nodes.values())
        choices = [set(range(end)) for end in range(most + 1)]
        if self._reorders:
            for number in range(most):
                choices += [{number}, set(range(most)) - {number}]
        for chosen in choices:
            for is_durable in (True, False):
                image: dict[str, bytes | None] = {}
                self._collect(root, "", image, chosen, is_durable=is_durable)
                yield image

    def _collect(
        self,
        inode: int,
        path: str,
        image: dict[str, bytes | None],
        chosen: set[int],
        *,
        is_durable: bool,
    ) -> None:
        node = self._nodes[inode]
        names: dict[str, int | None] = dict(node.names)
        for index, change in enumerate(node.changes):
            if index in chosen:
                names.update(change)
        for name, found in sorted(names.items()):
            if found is None:
                continue
            place = os.path.join(path, name)
            if self._nodes[found].is_directory:
                image[place] = None
                self._collect(found, place, image, chosen, is_durable=is_durable)
            else:
                each = self._nodes[found]
                content = each.durable if is_durable else each.content()
                image[place] = self._contents.setdefault(content, content)


_RECORDED = ("pwrite", "ftruncate", "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")


@contextmanager
def power_cuts(
    root: Path, *, reorders: bool = False, has_synced: bool = True, lost: tuple[str, ...] = ()
) -> Iterator[PowerCuts]:
    """Record what changes below a directory.

    Args:
        root: The directory.
        reorders: See the module docstring.
        has_synced: The content of what is there is on the disk.
        lost: Parts of names of files that are always empty afterwards: large ones that can be derived.
    """
    found = PowerCuts(root, reorders=reorders, has_synced=has_synced, lost=lost)
    try:
        with ExitStack() as patches:
            for name in _RECORDED:
                patches.enter_context(mock.patch.object(os, name, found.wrap(name, getattr(os, name))))
            yield found
    finally:
        found.close()


def restore(image: Image, directory: Path) -> Path:
    """Make a directory of an image, in the place of what is there; return it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
    for name, content in image.items():
        if content is None:
            (directory / name).mkdir(mode=0o700)
        else:
            (directory / name).write_bytes(content)
    return directory
