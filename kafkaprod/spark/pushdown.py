"""Filters that the reader applies itself: on topic, partition and offset, before anything is fetched.

Spark 4.1 and later passes them as a conjunction and does not check a filter that the reader accepts. So one is accepted
only if it is applied in full; Spark evaluates the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

_MOST: Final = (1 << 63) - 1
_NEVER_NULL: Final = frozenset(("topic", "partition", "offset", "timestamp", "timestampType"))


@dataclass(slots=True)
class Bounds:
    """The partitions and offsets that may be read.

    Attributes:
        topics, partitions: Only these; None: all.
        first, end: Offsets, the end not included.
    """

    topics: frozenset[Any] | None = None
    partitions: frozenset[Any] | None = None
    first: int = field(default=0)
    end: int = field(default=_MOST)

    def take(self, condition: Any) -> bool:
        """Narrow the bounds by one of pyspark's filters; return whether it is applied in full."""
        column, kind, value = _parts(condition)
        if kind == "IsNotNull":
            return column in _NEVER_NULL
        if value is None:
            return False
        if kind in ("EqualTo", "EqualNullSafe", "In") and column in ("topic", "partition"):
            wanted = frozenset(value if kind == "In" else (value,))
            if column == "topic":
                self.topics = wanted if self.topics is None else self.topics & wanted
            else:
                self.partitions = wanted if self.partitions is None else self.partitions & wanted
            return True
        return column == "offset" and self._take_offset(kind, value)

    def _take_offset(self, kind: str, value: Any) -> bool:
        at_least = {"GreaterThan": value + 1, "GreaterThanOrEqual": value} if isinstance(value, int) else {}
        below = {"LessThan": value, "LessThanOrEqual": value + 1} if isinstance(value, int) else {}
        if isinstance(value, int) and kind in ("EqualTo", "EqualNullSafe"):
            at_least[kind], below[kind] = value, value + 1
        self.first = max(self.first, at_least.get(kind, self.first))
        self.end = min(self.end, below.get(kind, self.end))
        return kind in at_least or kind in below

    def allow(self, topic: str, partition: int) -> bool:
        """Return whether a partition may be read."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def _parts(condition: Any) -> tuple[str, str, Any]:
    """Return column (empty for one inside a struct or a filter of filters), class name and value."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    name = str(path[0]) if len(path) == 1 else ""
    return name, type(condition).__name__, getattr(condition, "value", None)
