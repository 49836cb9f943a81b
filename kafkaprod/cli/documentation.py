"""Make the page docs/cli.md from the parsers: `python -m kafkaprod.cli > docs/cli.md`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kafkaprod.cli.main import COMMANDS, EXAMPLES, build_parser

_HEAD = """\
# Commands

<!-- Made by `python -m kafkaprod.cli`; change the parsers in kafkaprod/cli instead. -->

`-b`, `-X` and `-F` mean the same in every command: addresses of brokers, an option of the producer in any spelling, and
a `.properties` file of options (without `-F` the file that `$KAFKAPROD_CONFIG` names). Flags win over `-X`, and `-X`
wins over the file. `kafkaprod help COMMAND` prints the help of a command.

Data goes to stdout, messages go to stderr. A terminal gets colours unless `NO_COLOR` is set, and no control character
from a broker or a record unless `tail --raw` is given.

| exit code | meaning |
| --- | --- |
| 0 | done; `--if-exists` and `--if-not-exists`: there was nothing to do |
| 1 | what was begun failed: a record or row cannot be sent, the cluster refused it or cannot be reached, the topic \
does not exist; `doctor`: a problem was found; `perf`: records failed; `spool verify`: a slot is damaged |
| 2 | refused before anything was done: wrong arguments, options or input files; `load`: the input is already loaded, \
or the options are not those of the load to resume |
| 3 | `load`, `quickstart`: complete, but some rows were left out or put aside |
| 75 | `load`: stopped for a reason that may pass; try again; `spool drain`: all that is left is in slots in use |
| 130, 143 | interrupted by Ctrl-C, by SIGTERM |
| 141 | the reader of stdout closed it, as `head` does |
"""


def cli_page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([_HEAD, *(_section(parser, 2) for parser in _children(build_parser(COMMANDS)))])


def _section(parser: argparse.ArgumentParser, level: int) -> str:
    lines = [f"{'#' * level} {parser.prog}", "", *([parser.description, ""] if parser.description else [])]
    children = list(_children(parser))
    groups = () if children else parser._action_groups
    for group in groups:
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        rows = [_row(action) for action in shown if not isinstance(action, argparse._HelpAction)]
        if rows:
            title = "" if group.title in (None, "positional arguments", "options") else str(group.title)
            lines += [f"| {title} | |", "| --- | --- |", *rows, ""]
    lines += _epilog(parser.epilog or "")
    return "\n".join([*lines, *(_section(child, level + 1) for child in children)])


def _epilog(text: str) -> list[str]:
    """Return the epilog's lines; examples become a code block."""
    text, _, examples = text.partition(EXAMPLES)
    lines = [text.strip(), ""] if text.strip() else []
    return [*lines, *(f"  {line}" for line in examples.splitlines()), *([""] if examples else [])]


def _row(action: argparse.Action) -> str:
    help_text = (action.help or "") % (vars(action) | {"prog": ""})
    return f"| {_spelled(action)} | {help_text.replace('|', chr(92) + '|')} |"


def _spelled(action: argparse.Action) -> str:
    """Return flags and their values, independent of how a version of argparse shows them."""
    if action.nargs == 0:
        value = ""
    elif action.metavar is not None:
        value = str(action.metavar)
    else:
        value = "\\|".join(map(str, action.choices)) if action.choices is not None else action.dest.upper()
    if action.nargs == "?" and action.option_strings:
        value = f"[{value}]"
    names = ", ".join(f"`{flag}`" for flag in action.option_strings)
    return f"{names} {value.replace('|', chr(92) + '|') if action.metavar else value}".strip()


def _children(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()
