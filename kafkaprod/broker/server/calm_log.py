"""Keeps what clients can cause from filling the log: a line of one kind is printed once a second."""

from __future__ import annotations

import logging
import time

_INTERVAL_S = 1.0
_MAX_KINDS = 100


class OneLineASecond(logging.Filter):
    """Lets one record of a kind pass in a second and counts those it held back; critical ones always pass.

    The kind is the text before its arguments are put in. Beyond a hundred kinds the oldest is forgotten.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[object, tuple[float, int]] = {}  # kind -> when the next one passes, how many did not

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether this record is printed."""
        now_s = time.monotonic()
        kind = record.msg
        next_s, held_count = self._held.get(kind, (0.0, 0))
        if now_s < next_s and record.levelno < logging.CRITICAL:
            self._held[kind] = (next_s, held_count + 1)
            return False
        self._held.pop(kind, None)
        self._held[kind] = (now_s + _INTERVAL_S, 0)
        if len(self._held) > _MAX_KINDS:
            del self._held[next(iter(self._held))]
        if held_count:
            record.msg = f"{record.msg} ({held_count} more like it not shown)"
        return True


def keep_calm(root: logging.Logger) -> None:
    """Have the handlers of a logger print one line of a kind in a second."""
    for handler in root.handlers:
        handler.addFilter(OneLineASecond())
