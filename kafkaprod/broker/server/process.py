"""What a process of its own does before it runs a broker; a program that runs one in a thread is left as it is."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 4 * 1024 * 1024
_LONG_COLLECTION_S = 0.02
_YOUNG_OBJECTS = 10_000  # about 1 MB, and a millisecond
_TABLE_DESCRIPTORS = 1024
ENDS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What ends a process from outside: also a terminal that is closed, and its Ctrl-\\."""
_DESCRIPTOR_LIMITS = (262_144, 65_536, 24_576, 10_240)


def prepare_process() -> None:
    """Raise the limit of open files, have large freed blocks of memory given back, and keep collections short.

    To be called before threads are started.
    """
    raise_descriptor_limit()
    grow_descriptor_table()
    give_back_large_blocks()
    keep_collections_short()


def stop_on_signals(stop: Callable[[], None], numbers: Sequence[signal.Signals] = ENDS) -> None:
    """Have signals stop the process cleanly; one that is ignored, as SIGHUP by nohup, stays so."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())


def raise_descriptor_limit() -> None:
    """Let the process open as many files as it is allowed to: each partition keeps one open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    # macOS has no hard limit, but refuses a soft one above kern.maxfilesperproc, also "unlimited". It begins with 256.
    lower = (limit for limit in _DESCRIPTOR_LIMITS if soft < limit and (hard == resource.RLIM_INFINITY or limit < hard))
    for limit in (hard, *lower):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return


def grow_descriptor_table() -> None:
    """Have the kernel make room for 1,024 descriptors, 8 KiB, while the process has one thread.

    Linux begins with room for 64. To make more for a process of several threads it waits until no processor reads the
    old table (synchronize_rcu): the call that opens the 65th file, or accepts that connection, then takes 10 to 20 ms.
    """
    spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(spare, fcntl.F_DUPFD_CLOEXEC, _TABLE_DESCRIPTORS - 1))
    except OSError:  # the limit of open files is lower
        return
    finally:
        os.close(spare)


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


def keep_collections_short() -> None:
    """Collect cycles more seldom, and leave what is alive after a long collection out of the next ones.

    Python collects after 700 new objects, which takes a sixth of the time in which many topics are made.
    Ten thousand partitions are half a million objects: each full collection would hold every client up for a quarter of
    a second. What is left out is still freed when the last reference to it goes.
    """
    began_s = 0.0

    def on_collection(phase: str, _: dict[str, Any]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.thread_time()
        elif time.thread_time() - began_s > _LONG_COLLECTION_S:
            gc.freeze()

    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    gc.callbacks.append(on_collection)
