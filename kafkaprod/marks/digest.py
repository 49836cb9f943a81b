"""The digest of rows on their way: of a try that writes them, and of one that only compares them with a mark."""

from __future__ import annotations

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.columns.row_digest import RowDigest


class RowTap:
    """Sees rows after serializers, before partitions are chosen. One thread at a time.

    Attributes:
        is_rehearsal: The rows are only looked at, not sent: the write is committed already.
        topics: Those of the rows, in the order of the first row of each.
    """

    def __init__(self, *, is_rehearsal: bool = False) -> None:
        self.is_rehearsal = is_rehearsal
        self.topics: dict[str, None] = {}
        self._digest = RowDigest()

    @property
    def rows(self) -> int:
        """How many rows were seen."""
        return self._digest.rows

    @property
    def digest(self) -> str:
        """The digest of all of them."""
        return self._digest.text()

    def take(self, topic: str, value: Column, key: Column | None, headers: Headers, rows: int) -> None:
        """Look at the rows of one call."""
        self.topics.setdefault(topic)
        self._digest.add(topic, value, key, headers, rows)
