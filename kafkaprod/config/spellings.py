"""From the names users write to options: Kafka's with dots, the same with underscores, and other clients'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkaprod.config.jaas import parse_jaas
from kafkaprod.config.kinds import Translate
from kafkaprod.config.option import Option
from kafkaprod.config.refused import REFUSED, REFUSED_VALUES
from kafkaprod.errors import ConfigError
from kafkaprod.threads import importing


@importing
def _get_close_matches() -> Callable[..., list[str]]:
    from difflib import get_close_matches  # for an error only

    return get_close_matches


_EXPANDED: Mapping[str, Callable[[object], dict[str, object]]] = {"sasl.jaas.config": parse_jaas}


class _Target(NamedTuple):
    option: Option
    translate: Translate | None


class Spellings:
    """All names of some options.

    Args:
        options: By name.
    """

    def __init__(self, options: Mapping[str, Option]) -> None:
        self._targets: dict[str, _Target] = {}
        for option in options.values():
            for dotted, translate in {option.dotted_name: None, **option.aliases}.items():
                for spelling in (dotted, dotted.replace(".", "_")):
                    if self._targets.setdefault(spelling, _Target(option, translate)).option is not option:
                        raise AssertionError(f"{spelling} names two options")

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """The values of the options that are given, by option name.

        Raises:
            ConfigError: A name is unknown or refused, an option is given twice, or a value is not allowed.
        """
        values: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for spelling, value in given.items():
            for name, plain_value in self._expand(spelling, value).items():
                target = self._find(name)
                option = target.option
                if option.name in values:
                    raise ConfigError(f"{option.name} is given twice: as {spelled[option.name]} and as {spelling}")
                values[option.name] = option.parse(plain_value, name, target.translate)
                spelled[option.name] = spelling
        return values

    def _expand(self, spelling: str, value: object) -> dict[str, object]:
        dotted = spelling.replace("_", ".") if isinstance(spelling, str) else spelling
        if dotted in _EXPANDED:
            return _EXPANDED[dotted](value)
        if dotted in REFUSED_VALUES:
            accepted, advice = REFUSED_VALUES[dotted]
            if str(value).lower() not in (name.lower() for name in accepted):
                raise ConfigError(f"{spelling}={value!r} is not supported: {advice}")
            return {}
        if value is None and dotted in REFUSED:  # "not set", as programs that copy another client's defaults say it
            return {}
        return {spelling: value}

    def _find(self, spelling: str) -> _Target:
        target = self._targets.get(spelling)
        if target is not None:
            return target
        advice = REFUSED.get(spelling.replace("_", ".")) if isinstance(spelling, str) else None
        if advice is not None:
            raise ConfigError(f"{spelling} is not supported: {advice}")
        raise ConfigError(f"unknown option {spelling!r}{self._suggest(spelling)}")

    def _suggest(self, spelling: object) -> str:
        wanted = str(spelling).lower().replace(".", "_").replace("-", "_")
        names = {name.replace(".", "_"): target.option.name for name, target in self._targets.items()}
        return suggest(wanted, names)


def suggest(wanted: str, names: Mapping[str, str]) -> str:
    """Return a question for the name that was meant, of those by their spellings; "" if none is near."""
    nearest = _get_close_matches()(wanted, names, n=1)
    return f"; did you mean {names[nearest[0]]}?" if nearest else ""
