"""Producer ids that never repeat, not even after a crash: blocks of ids are reserved on disk before one is given out.

The control thread owns it. Source: KIP-730 (blocks of 1000).
"""

from __future__ import annotations

import os
from collections import deque

from kafkaprod.broker.storage.disk import Disk, read_file, replace_file_durably
from kafkaprod.errors import CorruptDataError

FILE_NAME = "producer-id-block"

_BLOCK_SIZE = 1_000


class ProducerIds:
    """Gives out ids. The file holds the first id that is not reserved yet, as a decimal number."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        """Read the file.

        Raises:
            CorruptDataError: it holds no number; guessing one could repeat an id.
        """
        self._disk = disk
        self._path = os.path.join(data_dir, FILE_NAME)
        self._next_id = self._reserved_below = _read(self._path)

    def allocate(self) -> int:
        """A fresh id.

        Raises:
            OSError: the next block could not be reserved; no id was given out.
        """
        if self._next_id == self._reserved_below:
            reserved_below = self._reserved_below + _BLOCK_SIZE
            replace_file_durably(self._disk, self._path, f"{reserved_below}\n".encode())
            self._reserved_below = reserved_below
        self._next_id += 1
        return self._next_id - 1


class ClusterProducerIds:
    """Gives out ids of blocks that come from the cluster's controller. Thread-safe: ids are taken from a queue."""

    def __init__(self) -> None:
        self._ids: deque[int] = deque()

    @property
    def is_low(self) -> bool:
        """Whether another block is needed soon."""
        return len(self._ids) < _BLOCK_SIZE // 2

    def add_block(self, first_id: int, count: int) -> None:
        """Take a block over."""
        self._ids.extend(range(first_id, first_id + count))

    def allocate(self) -> int:
        """A fresh id.

        Raises:
            OSError: no block has come yet.
        """
        try:
            return self._ids.popleft()
        except IndexError as error:
            raise OSError("the controller has not given this broker producer ids yet") from error


def _read(path: str) -> int:
    try:
        content = read_file(path)[:64].strip()
    except FileNotFoundError:
        return 0
    if not content.isdigit():
        raise CorruptDataError(f"{path} holds {content!r}, not a producer id")
    return int(content)
