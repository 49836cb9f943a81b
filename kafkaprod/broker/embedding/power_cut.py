"""What a power cut leaves of a killed broker's files: of each log what was synced, and perhaps some of the rest."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator


def cut_power(data_dir: str, journal: str, seed: int) -> dict[str, int]:
    """Cut the logs of a broker that does not run; return the bytes that each log lost.

    Args:
        data_dir: The directory of the broker.
        journal: The journal of its `UnsyncedDisk`: what would be on the disk.
        seed: Decides how much of the rest stays; the same files and seed give the same cut.
    """
    synced = _synced_sizes(journal)
    dice = random.Random(seed)
    lost = {}
    for path in sorted(_logs(data_dir)):
        size = os.path.getsize(path)
        kept = dice.randint(min(synced.get(path, 0), size), size)
        if kept < size:
            os.truncate(path, kept)
            lost[path] = size - kept
    return lost


def _synced_sizes(journal: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    if os.path.exists(journal):
        with open(journal, encoding="utf-8") as file:
            for line in file:
                size, _, path = line.rstrip("\n").partition("\t")
                sizes[path] = int(size)
    return sizes


def _logs(data_dir: str) -> Iterator[str]:
    for folder, _, names in os.walk(data_dir):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".log"))
