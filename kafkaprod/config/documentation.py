"""Make the page docs/configuration.md from the table: `python -m kafkaprod.config > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kafkaprod.config.option import REQUIRED, Option
from kafkaprod.config.producer_config import OPTIONS
from kafkaprod.config.refused import REFUSED, REFUSED_VALUES
from kafkaprod.config.rules import RULES

NOT_YET: Final[dict[str, str]] = {
    "transaction_two_phase_commit_enable": "two-phase commit (KIP-939) is refused: no released broker completes it",
}
"""Options of the table that this version does not implement, and why: they get no entry on the page."""

_HEAD = """\
# Configuration

<!-- Made by `python -m kafkaprod.config`; change the table in kafkaprod/config instead. -->

Give options to `Producer` as keyword arguments or as a mapping, or read them from a Java `.properties` file:
`Producer(ProducerConfig.from_file(path))`. Each can be written with dots as in Kafka (`linger.ms`), with underscores
(`linger_ms`), or under the names of other clients listed with it. Values may be text (`"5"`, `"true"`). An unknown
option, a value out of range, an option given twice, or options in conflict raise `ConfigError`; nothing is ignored or
turned off silently. Passwords never appear in messages and logs. `${...}` is not expanded.

Each option has a link of its own: `configuration.md#linger_ms`.
"""


def configuration_page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([_HEAD, *_sections(), *_rules(), *_not_yet(), *_refused()])


def _sections() -> Iterator[str]:
    documented = [option for option in OPTIONS.values() if option.name not in NOT_YET]
    for title in dict.fromkeys(option.section.title for option in documented):
        yield f"## {title}\n"
        for option in documented:
            if option.section.title == title:
                yield from _entry(option)


def _entry(option: Option) -> Iterator[str]:
    yield f"### `{option.name}`\n"
    yield f"{option.doc}\n"
    if option.default is REQUIRED:
        yield "- required"
    else:
        yield f"- default: `{option.show(option.default)}` {option.unit}".rstrip()
    yield f"- allowed: {option.allowed}"
    if option.aliases:
        yield f"- also known as: {', '.join(f'`{alias}`' for alias in option.aliases)}"
    yield f"- importance: {option.importance}\n"


def _rules() -> Iterator[str]:
    yield "## Rules between options\n"
    yield from (f"- {rule.doc}" for rule in RULES if not any(f"`{name}`" in rule.doc for name in NOT_YET))
    yield ""


def _not_yet() -> Iterator[str]:
    if NOT_YET:
        yield "## Not in this version\n"
        yield from (f"- `{name}`: {reason}" for name, reason in NOT_YET.items())
        yield ""


def _refused() -> Iterator[str]:
    yield "## Names that are refused\n"
    yield "Options of other clients that have no equivalent. The error contains the same advice.\n"
    values = ((f"`{name}` other than {', '.join(legal)}", advice) for name, (legal, advice) in REFUSED_VALUES.items())
    names = ((f"`{name}`", advice) for name, advice in REFUSED.items())
    yield from _table(("name", "instead"), sorted([*values, *names]))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _line(head)
    yield _line(("---",) * len(head))
    yield from map(_line, rows)
    yield ""


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
