"""The page docs/configuration.md, made from the table: `python -m kafkaprod.config > docs/configuration.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkaprod.config.option import REQUIRED, Option
from kafkaprod.config.producer_config import OPTIONS
from kafkaprod.config.refused import REFUSED, REFUSED_VALUES
from kafkaprod.config.rules import RULES

_HEAD = """\
# Configuration

<!-- Made by `python -m kafkaprod.config`; change the table in kafkaprod/config instead. -->

Options are given to `Producer` as keyword arguments or as a mapping, or come from a Java `.properties` file
(`ProducerConfig.from_file`). Each can be written in Kafka's spelling (`linger.ms`), with underscores (`linger_ms`), or
by the other clients' names in the last column. Values may be text (`"5"`, `"true"`). An unknown option, a value out of
range, an option given twice, or options in conflict raise `ConfigError`; nothing is ignored or turned off silently.
Passwords never appear in messages and logs. `${...}` is not expanded.
"""


def configuration_page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_HEAD, *_sections(), *_rules(), *_refused()])


def _sections() -> Iterator[str]:
    titles = dict.fromkeys(option.section.title for option in OPTIONS.values())
    for title in titles:
        yield f"## {title}\n"
        yield from _table(
            ("option", "default", "allowed", "importance", "meaning", "also known as"),
            (_row(option) for option in OPTIONS.values() if option.section.title == title),
        )


def _row(option: Option) -> tuple[str, ...]:
    default = "required" if option.default is REQUIRED else f"`{option.show(option.default)}`"
    return (
        f"`{option.name}`",
        f"{default} {option.unit if option.default is not REQUIRED else ''}".strip(),
        option.allowed,
        option.importance,
        option.doc,
        ", ".join(f"`{alias}`" for alias in option.aliases),
    )


def _rules() -> Iterator[str]:
    yield "## Rules between options\n"
    yield from (f"- {rule.doc}" for rule in RULES)
    yield "- `transaction_timeout_ms` is not given with `transaction_two_phase_commit_enable`"
    yield ""


def _refused() -> Iterator[str]:
    yield "## Names that are refused\n"
    yield "Options of other clients that have no equivalent; the error says the same.\n"
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
