"""The digest of rows on their way: of a try that writes them, and of one that only compares them with a mark."""

from __future__ import annotations

from array import array
from typing import Any, Literal

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.columns.row_digest import RowDigest
from kafkaprod.intake.blocks import GivenPlaces


class RowTap:
    """Sees rows after serializers, before partitions are chosen. One thread at a time.

    Args:
        is_rehearsal: As the attribute.
        counts_only: No digest is wanted.

    Attributes:
        is_rehearsal: The rows are only looked at, not sent: the write is committed already.
        rows: How many were seen.
        topics: Those of the rows, in the order of the first row of each.
        named_partitions: The partitions that the program has named for the rows of the next call, -1: none, where those
            of the call were chosen by its partitioner; None: all of the call count.
    """

    def __init__(self, *, is_rehearsal: bool = False, counts_only: bool = False) -> None:
        self.is_rehearsal = is_rehearsal
        self.topics: dict[str, None] = {}
        self.rows = 0
        self.named_partitions: list[int] | None = None
        self._digest = None if counts_only else RowDigest()

    @property
    def digest(self) -> str:
        """The digest of all of them; empty if none is made."""
        return "" if self._digest is None else self._digest.text()

    def take(
        self, topic: str, value: Column, key: Column | None, headers: Headers, rows: int, given: GivenPlaces
    ) -> None:
        """Look at the rows of one call."""
        self.topics.setdefault(topic)
        self.rows += rows
        if self._digest is None:
            return
        named = given.partitions if self.named_partitions is None else self.named_partitions
        timestamps, partitions = _numbers(given.timestamps_ms, "q"), _numbers(named, "i")
        if timestamps is not None or partitions is not None or given.partition >= 0:
            self._digest.add_places(timestamps, partitions, given.partition, rows)
        self._digest.add(topic, value, key, headers, rows)


def _numbers(source: Any, code: Literal["q", "i"]) -> memoryview | None:
    """Return a list or an array as a buffer; None where it is something else: who sends the rows refuses it."""
    if source is None:
        return None
    try:
        if isinstance(source, list | tuple):
            return memoryview(array(code, source))
        view = memoryview(source)
        if view.c_contiguous and view.itemsize == array(code).itemsize and view.format in "ilq":
            return view.cast("B").cast(code)
        return memoryview(array(code, view.tolist()))
    except (BufferError, OverflowError, TypeError, ValueError):
        return None
