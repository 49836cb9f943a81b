"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug.

    Attributes:
        name: What is wrong, in a sentence.
        path: The file below `kafkaprod/`.
        old: The text to replace; it occurs once.
        new: What takes its place.
        tests: Arguments for pytest: what must fail.
    """

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
