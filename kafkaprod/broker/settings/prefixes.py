"""Prefixes of names, found in steps that do not grow with how many there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Prefixes:
    """Finds which of many prefixes begin a name.

    In the order of the texts, whatever begins a name also begins every text between it and the name. So the last text
    that is not behind the name is the longest prefix of it, or one of the texts that begin that text is. Not changed
    once made: any thread.
    """

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._sorted = sorted(set(prefixes))
        self._parents: list[int] = []  # for each the longest other one that begins it; -1: no other
        begun: list[int] = []
        for index, prefix in enumerate(self._sorted):
            while begun and not prefix.startswith(self._sorted[begun[-1]]):
                begun.pop()
            self._parents.append(begun[-1] if begun else -1)
            begun.append(index)

    def longest(self, name: str) -> str | None:
        """Return the longest prefix of a name; None if there is none."""
        return next(self.all_of(name), None)

    def all_of(self, name: str) -> Iterator[str]:
        """Yield all prefixes of a name, the longest first."""
        index = bisect_right(self._sorted, name) - 1
        while index >= 0 and not name.startswith(self._sorted[index]):
            index = self._parents[index]
        while index >= 0:
            yield self._sorted[index]
            index = self._parents[index]
