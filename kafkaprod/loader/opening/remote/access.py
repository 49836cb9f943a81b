"""How a load asks the servers of its objects. Light: every load imports it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafkaprod.loader.opening.remote.objects import Closing, RangeCounts, RangePatience, Tries

FIRST_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class HeaderSource:
    """A header for the first origin, with the environment's variable that has its value."""

    name: str
    variable: str


@dataclass(frozen=True, slots=True)
class Access:
    """Holds how to ask servers.

    Attributes:
        headers: For the first origin of each address.
        patience: How long to wait.
        allowed_urls: The addresses that may be asked, those of redirects too; None: all.
        counts: Counts.
    """

    headers: tuple[HeaderSource, ...] = ()
    patience: RangePatience = field(default_factory=RangePatience)
    allowed_urls: tuple[str, ...] | None = None
    counts: RangeCounts = field(default_factory=RangeCounts, compare=False)

    def __reduce__(self) -> Any:
        return Access, (self.headers, self.patience, self.allowed_urls)

    def tries(self, name: str, closing: Closing | None = None) -> Tries:
        """Return what tries again to read an object."""
        return Tries(name, self.counts, self.patience, closing or Closing())

    def first_tries(self, name: str) -> Tries:
        """Return the same for an object of which nothing was read yet: its address may be wrong."""
        patience = replace(self.patience, all_s=min(self.patience.all_s, FIRST_S))
        return Tries(name, self.counts, patience, Closing())
