"""The numbered directories of a spool, each of one producer at a time, by a lock of the kernel.

A producer takes the free slot with the lowest number, or makes one. The name says nothing of process, host or boot: who
comes after a killed process finds what it left.
"""

from __future__ import annotations

import os
from typing import Final

from kafkaprod.errors import ConfigError
from kafkaprod.spool.entries import UNKNOWN_BOOT, JournalPlace
from kafkaprod.spool.journal import Journal, SlotInUseError
from kafkaprod.storage.disk import Disk, check_owner, is_directory, make_directory

MOST_SLOTS: Final = 10_000
LEAST_SEGMENT_BYTES: Final = 4 << 20
MOST_SEGMENT_BYTES: Final = 64 << 20
SEGMENTS: Final = 64  # of a full spool
_PREFIX: Final = "slot-"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def open_slot(directory: str, max_bytes: int) -> Journal:
    """Take the free slot with the lowest number, or make one.

    Raises:
        ConfigError: Others may write to the directory, it cannot be written, or a newer release has written the slot.
    """
    disk = Disk()
    directory = os.path.abspath(directory)
    try:
        if not is_directory(directory):
            make_directory(disk, directory)
        check_owner(directory)
        for number in range(MOST_SLOTS):
            slot = os.path.join(directory, f"{_PREFIX}{number:02d}")
            if not is_directory(slot):
                make_directory(disk, slot)
            try:
                return open_journal(slot, max_bytes, disk)
            except SlotInUseError:
                continue
    except OSError as error:
        raise ConfigError(f"spool_dir={directory!r} cannot be used: {error}") from error
    raise ConfigError(f"spool_dir={directory!r} has {MOST_SLOTS} slots, and all are in use")


def slot_names(directory: str) -> list[str]:
    """Return the names of all slots, in order. Raises OSError."""
    names = [name for name in os.listdir(directory) if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdecimal()]
    return sorted(names, key=lambda name: int(name[len(_PREFIX) :]))


def open_journal(slot: str, max_bytes: int, disk: Disk) -> Journal:
    """Open the journal of a slot.

    Raises:
        SlotInUseError: Another producer has it.
        ConfigError, OSError: As `Journal`.
    """
    segment_bytes = min(max(max_bytes // SEGMENTS, LEAST_SEGMENT_BYTES), MOST_SEGMENT_BYTES)
    return Journal(slot, max_bytes, segment_bytes, disk, place_of(slot))


def place_of(slot: str) -> JournalPlace:
    """Return where this process is, and its slot."""
    status = os.stat(slot)
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot_id = bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        boot_id = UNKNOWN_BOOT
    return JournalPlace(boot_id, status.st_dev, status.st_ino)
