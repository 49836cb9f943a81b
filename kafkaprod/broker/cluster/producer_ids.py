"""Producer ids that never repeat, not even after a crash: the controller has written down that a block is given out.

Source: KIP-730 (blocks of 1000).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

_BLOCK_SIZE: Final = 1_000


class ProducerIds:
    """Gives out ids of blocks that come from the controller. Thread-safe: ids are taken from a queue."""

    def __init__(self, on_empty: Callable[[], None] = lambda: None) -> None:
        """Begin without an id.

        Args:
            on_empty: Called when an id is wanted and none is left; may add a block.
        """
        self._on_empty = on_empty
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
            OSError: No block has come yet, or none could be reserved.
        """
        if not self._ids:
            self._on_empty()
        try:
            return self._ids.popleft()
        except IndexError as error:
            raise OSError("the controller has not given this broker producer ids yet") from error
