"""The kind of `topic_options`: options whose values differ by topic.

A key is the name of a topic, or the beginning of names with a * behind it. One entry counts for a topic: that of its
name, or else that with the longest beginning. What the entry leaves out is as for all other topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kafkaprod.config.kinds import MalformedError, Translate
from kafkaprod.config.option import Option, option_of
from kafkaprod.config.spellings import suggest
from kafkaprod.errors import ConfigError
from kafkaprod.text import why_unsendable
from kafkaprod.threads import importing

_SHOWN_CHARACTERS: Final = 80
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@importing
def _loads() -> Callable[..., object]:
    from json import loads  # few producers have options by topic, and fewer have them as text

    return loads


class TopicOptions(tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]):
    """(name or pattern, its options) pairs: names first, then the longest beginnings."""

    __slots__ = ()

    def find(self, topic: str) -> Mapping[str, Any]:
        """Return the options that a topic has of its own, by name."""
        for pattern, options in self:
            if topic == pattern or (pattern.endswith("*") and topic.startswith(pattern[:-1])):
                return dict(options)
        return _NOTHING

    def values_of(self, name: str) -> list[Any]:
        """Return what the entries that name an option say."""
        return [dict(options)[name] for _, options in self if name in dict(options)]


class TopicOptionsKind:
    """Options by topic: a mapping of mappings, or the text of such a JSON object. Kept as `TopicOptions`.

    Args:
        fields: The declarations of the options that may differ, by name.
    """

    __slots__ = ("_names", "_targets")
    type_name = "mapping"

    def __init__(self, **fields: Any) -> None:
        self._names = ", ".join(fields)
        self._targets: dict[str, tuple[Option, Translate | None]] = {}
        for name, field in fields.items():
            option = option_of(name, field)
            for dotted, translate in {option.dotted_name: None, **option.aliases}.items():
                for spelling in (dotted, dotted.replace(".", "_")):
                    self._targets[spelling] = option, translate

    @property
    def allowed(self) -> str:
        return (
            "a mapping, or the text of a JSON object, of topics (their names, or beginnings of names with * behind) to "
            f"mappings of {self._names}"
        )

    def parse(self, value: object) -> TopicOptions:
        if isinstance(value, TopicOptions):
            return value
        entries = _entries(value)
        parsed = [(_checked_pattern(pattern), self._options(pattern, given)) for pattern, given in entries.items()]
        return TopicOptions(sorted(parsed, key=lambda entry: _preference(entry[0])))

    def show(self, value: TopicOptions) -> str:
        return repr({pattern: dict(options) for pattern, options in value})

    def _options(self, pattern: str, given: object) -> tuple[tuple[str, Any], ...]:
        """Return what an entry says, by option name and in their order."""
        place = f"topic {_shown(pattern)}"
        if not isinstance(given, Mapping):
            raise MalformedError(f"{place} has no mapping of options, but <{type(given).__qualname__}>")
        values: dict[str, Any] = {}
        for spelling, value in given.items():
            option, translate = self._targets.get(spelling) or (None, None)
            if option is None:
                names = {name: target.name for name, (target, _) in self._targets.items()}
                hint = suggest(str(spelling)[:_SHOWN_CHARACTERS], names)
                raise MalformedError(f"{place}: {_shown(spelling)} cannot differ by topic{hint}")
            if option.name in values:
                raise MalformedError(f"{place}: {option.name} is given twice")
            try:
                values[option.name] = option.parse(value, spelling, translate)
            except ConfigError as error:
                raise MalformedError(f"{place}: {error}") from None
        return tuple(sorted(values.items()))


def _entries(value: object) -> Mapping[Any, Any]:
    if isinstance(value, str):
        try:
            value = _loads()(value, object_pairs_hook=_without_twins)
        except MalformedError:
            raise
        except (ValueError, RecursionError):
            raise MalformedError("the text is no JSON") from None
    if not isinstance(value, Mapping):
        raise ValueError(value)
    return value


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise MalformedError(f"{_shown(name)} is given twice")
        found[name] = value
    return found


def _checked_pattern(pattern: object) -> str:
    if not isinstance(pattern, str) or not pattern or why_unsendable(pattern) is not None:
        raise MalformedError(f"{_shown(pattern)} is not the name of a topic")
    if "*" in pattern[:-1]:
        raise MalformedError(f"{_shown(pattern)} has a * that is not its last character")
    return pattern


def _preference(pattern: str) -> tuple[bool, int, str]:
    return pattern.endswith("*"), -len(pattern), pattern


def _shown(name: object) -> str:
    return f"{name!r:.{_SHOWN_CHARACTERS}}" if isinstance(name, str) else f"<{type(name).__qualname__}>"
