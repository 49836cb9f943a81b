"""Define the errors that stop a load, which of them another try may cure, and rows that cannot be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafkaprod.errors import (
    AuthenticationError,
    AuthorizationError,
    BootstrapError,
    ConfigError,
    KafkaError,
    TopicNotFoundError,
    UnsupportedVersionError,
)


class LoadError(KafkaError):
    """The load cannot start or continue; the message names what to change."""


class LoadRefusedError(LoadError, ConfigError):
    """The load was refused before anything was sent: its arguments or inputs do not fit, or it was done before."""


class UnexpectedInputError(LoadError):
    """The input is not what the caller expects (`expected`); what was sent before stays in the topic."""


class LoadIsLockedError(LoadError):
    """Another process works at this load."""


_LASTING: Final = (
    AuthenticationError,
    AuthorizationError,
    BrokenPipeError,  # of stdout
    ConfigError,
    TopicNotFoundError,
    UnsupportedVersionError,
)
_PASSING: Final = (BootstrapError, ConnectionError, TimeoutError, LoadIsLockedError)


def is_temporary(error: BaseException) -> bool:
    """Return whether the same command may succeed later: a broker is down or slow, or another process is at work."""
    found: BaseException | None = error
    is_passing = False
    while found is not None:
        if isinstance(found, _LASTING):
            return False
        is_passing = is_passing or isinstance(found, _PASSING) or (isinstance(found, KafkaError) and found.retriable)
        found = found.__cause__
    return is_passing


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be sent.

    Attributes:
        source: Name of the input.
        row: Its number there, from 0.
        reason: What is wrong, for people.
        data: The bytes of the row in the input, as far as they are known.
        line: The line of the text on which it begins, from 1; None: as its number, or not known.
    """

    source: str
    row: int
    reason: str
    data: bytes
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None or self.line == self.row + 1 else f" (line {self.line})"
        return f"{self.source}, row {self.row + 1}{line}: {self.reason}"


def check_fields(wanted: Sequence[str], names: Sequence[str], source: str, hint: str = "") -> None:
    """Check that an input has the columns that are wanted; case and blanks count.

    Args:
        wanted: The names.
        names: Those of the input.
        source: Its name.
        hint: What else may be wrong, for the message.

    Raises:
        LoadRefusedError: One is missing.
    """
    known = set(names)
    missing = next((name for name in wanted if name not in known), None)
    if missing is None:
        return
    similar = next((name for name in names if name.strip().casefold() == missing.strip().casefold()), None)
    meant = "" if similar is None else f" (did you mean {similar!r}?)"
    raise LoadRefusedError(f"{source} has no column {missing!r}{meant}; it has: {', '.join(names)}{hint}")


def missing_package(package: str, what: str, extra: str = "load") -> LoadRefusedError:
    """Return the error for an optional package that is not installed."""
    return LoadRefusedError(f"{what} needs {package}: pip install 'kafkaprod[{extra}]'")
