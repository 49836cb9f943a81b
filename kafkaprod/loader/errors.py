"""What a load stops for, and rows that cannot be sent."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaprod.errors import KafkaError


class LoadError(KafkaError):
    """The load cannot start or go on; the message says what to change."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be sent.

    Attributes:
        source: Name of the input.
        row: Its number there, from 0.
        reason: For people.
        data: The row as it stands in the input, as far as that is known.
    """

    source: str
    row: int
    reason: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.source}, row {self.row + 1}: {self.reason}"


def missing_package(package: str, what: str, extra: str = "load") -> LoadError:
    """The error for an optional package that is not installed."""
    return LoadError(f"{what} needs {package}: pip install 'kafkaprod[{extra}]'")
