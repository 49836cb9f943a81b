"""When a journal is forced to the disk, and the thread that does it every so many milliseconds; none waits for it."""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.clock import monotonic_ns
from kafkaprod.spool.journal import Journal
from kafkaprod.storage.disk import Disk
from kafkaprod.threads import make_thread

logger = logging.getLogger("kafkaprod.spool")


class SyncPolicy(NamedTuple):
    """`spool_sync`: whether what is sent was forced to the disk before, and how often the rest is; 0: never."""

    is_each: bool
    interval_ms: int

    @classmethod
    def parse(cls, text: str) -> SyncPolicy:
        """Read the option."""
        return cls(text == "each", int(text.partition(":")[2] or 0))


class Syncing:
    """The thread; it starts with the first write, and sleeps while nothing is written.

    Args:
        journal: Whose file it syncs.
        disk: Makes the calls.
        interval_ms: The least time between two syncs.
    """

    def __init__(self, journal: Journal, disk: Disk, interval_ms: int) -> None:
        self._journal = journal
        self._disk = disk
        self._interval_s = interval_ms / 1000
        self._writes = Waiter()
        self._end = Waiter()
        self._has_ended = False
        self._is_started = False

    def note_write(self) -> None:
        """Note that something was written."""
        self._writes.wake()
        if not self._is_started:
            self._is_started = True
            make_thread(self._run, "kafkaprod-spool-sync").start()

    def end(self) -> None:
        """Let the thread end; it syncs nothing more."""
        self._has_ended = True
        self._writes.wake()
        self._end.wake()

    def _run(self) -> None:
        while not self._has_ended:
            self._writes.wait()
            if not self._has_ended:
                self._sync()
                self._end.wait(self._interval_s)

    def _sync(self) -> None:
        what = self._journal.unsynced()
        if what is None:
            return
        started_ns = monotonic_ns()
        try:
            self._disk.fdatasync(what.file)
        except OSError as error:
            self._journal.fail(what, error)
            logger.error("the disk has refused a sync of the spool's file %r: %s", what.file.path, error)
        else:
            self._journal.note_synced(what, started_ns)
