"""Room of the disk that a journal keeps for its own entries: outcomes can be noted on a full one, and files removed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from kafkaprod.storage.disk import Disk, write_at

CONTROL_RESERVE_BYTES: Final = 65_536
RESERVE_FILE: Final = "reserve"


class Reserve:
    """A file of zeros in a slot. Without it, on a disk that is full from the beginning, the journal does what it can.

    Args:
        directory: The slot.
        disk: Makes the calls.
    """

    def __init__(self, directory: str, disk: Disk) -> None:
        self._path = os.path.join(directory, RESERVE_FILE)
        self._disk = disk
        self._is_taken = False
        self.take()

    def take(self) -> None:
        """Take the room, if it was given and there is some."""
        if not self._is_taken:
            with suppress(OSError):
                write_at(self._disk, self._disk.create(self._path), bytes(CONTROL_RESERVE_BYTES), 0)
                self._is_taken = True

    def give(self) -> bool:
        """Give the room back; False: it was given before. Raises OSError."""
        was_taken, self._is_taken = self._is_taken, False
        if was_taken:
            self._disk.unlink(self._path)
        return was_taken
