"""The declaration of one option. `connection_options.py` and `producer_options.py` hold the table of them.

    _BATCHING = Section("Batching")
    ...
    linger_ms: int = _BATCHING.option(5, Integer(), MEDIUM, "...", unit="ms", aliases=("queue.buffering.max.ms",))

The declaration makes a dataclass field, so name, type and default are written once; the rest is in its metadata.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from kafkaprod.config.kinds import Hook, Kind, MalformedError, SecretText, Translate, Url
from kafkaprod.config.secret import HIDDEN, without_query
from kafkaprod.errors import ConfigError

Importance = Literal["high", "medium", "low"]
HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"

REQUIRED: Final = dataclasses.MISSING
_METADATA_KEY: Final = "kafkaprod"
_SHOWN_CHARACTERS: Final = 100


class Option(NamedTuple):
    """One option.

    Attributes:
        name: In snake case; with dots for underscores it is Kafka's name.
        section: Its chapter of the documentation.
        default: The value when the user gives none; `REQUIRED` if he must.
        kind: What it can hold.
        importance: How probably a user needs it, as in Kafka's own documentation.
        doc: What it does, in Markdown.
        unit: ms, bytes ... or empty.
        aliases: Other names with dots, each with the translation of its value or None.
    """

    name: str
    section: Section
    default: Any
    kind: Kind
    importance: Importance
    doc: str
    unit: str = ""
    aliases: Mapping[str, Translate | None] = MappingProxyType({})

    @property
    def dotted_name(self) -> str:
        """Kafka's spelling."""
        return self.name.replace("_", ".")

    @property
    def is_nullable(self) -> bool:
        """Whether None is legal; it then means "not set"."""
        return self.default is None

    @property
    def allowed(self) -> str:
        """What values are legal, as the end of "expected ..."."""
        return f"{self.kind.allowed}{', or None' if self.is_nullable else ''}"

    def parse(self, value: object, spelling: str = "", translate: Translate | None = None) -> Any:
        """The value to keep for what the user gave.

        Args:
            value: As given.
            spelling: The name it was given under, for the message; empty for the option's own.
            translate: The translation of the alias, if it was one.

        Raises:
            ConfigError: The value is not allowed; the message shows it unless the option is secret.
        """
        try:
            translated = value if translate is None else translate(value)
            return None if translated is None and self.is_nullable else self.kind.parse(translated)
        except ValueError as error:
            reason = f"{error}; " if isinstance(error, MalformedError) else ""
        # Behind the block: in it the other error, which could have a secret in its arguments, would be the context.
        raise ConfigError(
            f"{spelling or self.name}={self._show_given(value)} is not allowed: {reason}expected {self.allowed}"
        )

    def show(self, value: Any) -> str:
        """A kept value for messages and repr; never a secret."""
        return "None" if value is None else self.kind.show(value)

    def _show_given(self, value: object) -> str:
        if isinstance(self.kind, SecretText):
            return HIDDEN
        if isinstance(self.kind, Hook):
            return f"<{type(value).__qualname__}>"  # a text may be a token, where what gives tokens is due
        if isinstance(self.kind, Url) and isinstance(value, str):
            value = without_query(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(_show_scalar(item) for item in value)}]"
        return _show_scalar(value)


def _show_scalar(value: object) -> str:
    if not isinstance(value, str | int | float | None):
        return f"<{type(value).__qualname__}>"  # a user's repr may hold a secret
    text = repr(_without_credentials(value) if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _without_credentials(text: str) -> str:
    """Cut what stands before an @: user and password of an address written as kafka://user:password@host."""
    _, at, after = text.rpartition("@")
    return f"{HIDDEN}@{after}" if at else text


class Section:
    """A chapter of the documentation; its options are declared through it."""

    __slots__ = ("title",)

    def __init__(self, title: str) -> None:
        self.title = title

    def option(
        self,
        default: Any,
        kind: Kind,
        importance: Importance,
        doc: str,
        *,
        unit: str = "",
        aliases: tuple[str, ...] = (),
        translated: Mapping[str, Translate] | None = None,
    ) -> Any:
        """Declare an option as a field of a dataclass; a default of None makes it nullable.

        Args:
            default: See `Option`.
            kind: See `Option`.
            importance: See `Option`.
            doc: See `Option`.
            unit: See `Option`.
            aliases: Other names for the same value, with dots.
            translated: Other names, with dots, whose values need translation.
        """
        details = {
            "section": self,
            "default": default,
            "kind": kind,
            "importance": importance,
            "doc": doc,
            "unit": unit,
            "aliases": dict.fromkeys(aliases) | dict(translated or {}),
        }
        return field(default=default, metadata={_METADATA_KEY: details})


def option_of(name: str, declared: dataclasses.Field[Any]) -> Option:
    """The option that a field of a dataclass declares."""
    return Option(name, **declared.metadata[_METADATA_KEY])


def options_of(config_class: type) -> dict[str, Option]:
    """The options a dataclass declares, by name and in order."""
    return {
        each.name: option_of(each.name, each)
        for each in dataclasses.fields(config_class)
        if _METADATA_KEY in each.metadata
    }
