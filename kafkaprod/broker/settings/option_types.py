"""Types of options, of topics and of the broker: what a value may be, and Kafka's number of the type.

Numbers are ASCII digits with an optional minus sign, without spaces: Kafka's clients write them so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafkaprod.errors import ConfigError
from kafkaprod.structs import INT32_MAX

TYPE_BOOLEAN = 1
TYPE_STRING = 2
TYPE_INT = 3
TYPE_LONG = 5
TYPE_DOUBLE = 6
TYPE_LIST = 7
TYPE_PASSWORD = 9

_INT64_MAX = 2**63 - 1
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
_MAX_VALUE_LENGTH = 32_767  # what the protocol's strings hold
_MAX_SHOWN_LENGTH = 100


@dataclass(frozen=True, slots=True)
class OptionType:
    """What values an option may have.

    Attributes:
        kind: Number of the type in DescribeConfigs.
        low, high: Bounds of a number.
        choices: The only values of a string, or the only elements of a list; empty if any will do.
    """

    kind: int
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    def check(self, name: str, text: str) -> None:
        """Raise ConfigError, naming option, value and limit, unless the value is one of this type."""
        shown = name if self.kind == TYPE_PASSWORD else f"{name}={text[:_MAX_SHOWN_LENGTH]!r}"
        if len(text) > _MAX_VALUE_LENGTH or not text.isprintable():
            raise ConfigError(f"{shown}: longer than {_MAX_VALUE_LENGTH} characters, or not printable")
        if self.kind == TYPE_BOOLEAN and text.lower() not in ("true", "false"):
            raise ConfigError(f"{shown} is not true or false")
        if self.kind in (TYPE_INT, TYPE_LONG, TYPE_DOUBLE):
            self._check_number(shown, text)
        if self.choices:
            values = _elements(text) if self.kind == TYPE_LIST else [text]
            if not set(values) <= set(self.choices):
                raise ConfigError(f"{shown} is not of {', '.join(self.choices)}")

    def _check_number(self, shown: str, text: str) -> None:
        if not (_DECIMAL if self.kind == TYPE_DOUBLE else _WHOLE).fullmatch(text):
            raise ConfigError(f"{shown} is not a {'' if self.kind == TYPE_DOUBLE else 'whole '}number")
        number = float(text) if self.kind == TYPE_DOUBLE else int(text)
        if not self.low <= number <= self.high:
            raise ConfigError(f"{shown} is not in {self.low}..{self.high}")


def int32(low: int, high: int = INT32_MAX) -> OptionType:
    """Make a whole number of 32 bits."""
    return OptionType(TYPE_INT, low, high)


def int64(low: int, high: int = _INT64_MAX) -> OptionType:
    """Make a whole number of 64 bits."""
    return OptionType(TYPE_LONG, low, high)


def decimal(low: float, high: float) -> OptionType:
    """Make a number with decimals."""
    return OptionType(TYPE_DOUBLE, low, high)


def boolean() -> OptionType:
    """Make a truth value: true or false."""
    return OptionType(TYPE_BOOLEAN)


def string() -> OptionType:
    """Make any printable text."""
    return OptionType(TYPE_STRING)


def password() -> OptionType:
    """Make any printable text that is shown nowhere."""
    return OptionType(TYPE_PASSWORD)


def choice(*choices: str) -> OptionType:
    """Make a string that is one of these."""
    return OptionType(TYPE_STRING, choices=choices)


def list_of(*choices: str) -> OptionType:
    """Make a list, comma-separated, of these elements; of any if none are given."""
    return OptionType(TYPE_LIST, choices=choices)


def _elements(text: str) -> list[str]:
    return [element for element in text.split(",") if element]
