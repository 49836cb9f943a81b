"""Forces a journal to the disk every so many milliseconds, on a thread of its own: nothing waits for it."""

from __future__ import annotations

import logging

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.clock import monotonic_ns
from kafkaprod.spool.journal import Journal
from kafkaprod.storage.disk import Disk
from kafkaprod.threads import make_thread

logger = logging.getLogger("kafkaprod.spool")


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
            self._journal.fail(error)
            logger.error(
                "the spool %s takes no more records, as the disk has refused a sync: %s", what.file.path, error
            )
        else:
            self._journal.note_synced(what, started_ns)
