"""What a process of its own does before it runs a broker; a program that runs one in a thread is left as it is."""

from __future__ import annotations

import contextlib
import ctypes
import resource

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 4 * 1024 * 1024


def prepare_process() -> None:
    """Raise the limit of open files, and have large blocks of memory given back when they are freed."""
    raise_descriptor_limit()
    give_back_large_blocks()


def raise_descriptor_limit() -> None:
    """Let the process open as many files as it is allowed to: each partition keeps one open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a hard limit above what the kernel takes
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_back_large_blocks() -> None:
    """Have the C library map each block of 4 MiB and more by itself.

    glibc does so from 128 KiB on, until such a block is freed: then all of its size, up to 32 MiB, come from the heap.
    Parts of large requests that grow there beside each other leave gaps, a third of what is held when measured.
    A limit that is set also fixes what may stay free at the heap's end, at 128 KiB: less than one request, so that
    each would take pages from the kernel and give them back. It gets the value that glibc itself would choose.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BYTES)
