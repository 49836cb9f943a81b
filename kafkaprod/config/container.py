"""The memory for records of a producer whose user names no bound: at most an eighth of what the container may use.

A limit is the smallest of the process's control group and the groups above it (Linux; versions 1 and 2). A container
often sees its own group as the root of the mount, under a path that is not below it: the mount itself counts, too.
Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.max, memory.high) and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import Final

SHARE: Final = 8  # the rest is for Python, the program, and results that it keeps
LEAST_BYTES: Final = 4 << 20
_LIMITS_V2: Final = ("memory.max", "memory.high")
_LIMITS_V1: Final = ("memory.limit_in_bytes",)

logger = logging.getLogger("kafkaprod.config")


def default_buffer_memory(most: int, needed: int = 0) -> int:
    """Return the default of buffer_memory for this process; one line in the log says so if the container lowers it.

    Args:
        most: Bytes where nothing limits the process.
        needed: Bytes of the largest batch or record that other options allow; there is room for one, within `most`.
    """
    limit = container_limit()
    if limit is None or limit // SHARE >= most:
        return most
    chosen = min(most, max(LEAST_BYTES, limit // SHARE, needed))
    if chosen == limit // SHARE:
        logger.info("buffer_memory=%s: an eighth of the container's %s", _mib(chosen), _mib(limit))
    elif chosen < most:
        logger.info("buffer_memory=%s: an eighth of the container's %s would be too little", _mib(chosen), _mib(limit))
    return chosen


def container_limit(root: str = "/", physical_bytes: int | None = None) -> int | None:
    """Return how many bytes the process and those beside it in its container may use; None without a limit.

    Args:
        root: Where `proc` and `sys` are.
        physical_bytes: A limit that is not below this does not count; None: the machine's memory.
    """
    if sys.platform != "linux":
        return None
    if physical_bytes is None:
        physical_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    least = min(_limits(root), default=physical_bytes)
    return least if least < physical_bytes else None


def _limits(root: str) -> Iterator[int]:
    """Yield all limits that can be read. Version 1 has the memory wherever it has that controller."""
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield from _limits_of(os.path.join(root, "sys/fs/cgroup/memory"), path, _LIMITS_V1)
        elif number == "0":
            yield from _limits_of(os.path.join(root, "sys/fs/cgroup"), path, _LIMITS_V2)


def _limits_of(mount: str, path: str, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the limits of a group and of those above it, the mount included."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # outside of what is mounted here
        parts = []
    for count in range(len(parts), -1, -1):
        for name in names:
            text = _read(os.path.join(mount, *parts[:count], name)).strip()
            if text.isdecimal():  # "max": no limit
                yield int(text)


def _read(path: str) -> str:
    """Return what is in a small file; nothing if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.5g} MiB"
