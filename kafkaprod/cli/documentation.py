"""The page docs/cli.md, made from the parsers: `python -m kafkaprod.cli > docs/cli.md`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kafkaprod.cli.main import COMMANDS, build_parser

_HEAD = """\
# Commands

<!-- Made by `python -m kafkaprod.cli`; change the parsers in kafkaprod/cli instead. -->

`-b`, `-X` and `-F` mean the same everywhere: where the cluster is, an option of the producer in any spelling, and a
`.properties` file of them. A flag is before `-X`, that before the file, that before the file which `$KAFKAPROD_CONFIG`
names. Messages go to stderr. Exit codes: 0 done, 1 an error that the message names, 2 wrong arguments, 130 interrupted;
`load` also has 3: complete, but some rows were left out or put aside.
"""


def cli_page() -> str:
    """The whole page as Markdown."""
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
    lines += [parser.epilog, ""] if parser.epilog else []
    return "\n".join([*lines, *(_section(child, level + 1) for child in children)])


def _row(action: argparse.Action) -> str:
    help_text = (action.help or "") % (vars(action) | {"prog": ""})
    return f"| {_spelled(action)} | {help_text.replace('|', chr(92) + '|')} |"


def _spelled(action: argparse.Action) -> str:
    """Flags with what they take, independent of how a version of argparse shows them."""
    if action.nargs == 0:
        value = ""
    elif action.metavar is not None:
        value = str(action.metavar)
    else:
        value = "\\|".join(map(str, action.choices)) if action.choices is not None else action.dest.upper()
    names = ", ".join(f"`{flag}`" for flag in action.option_strings)
    return f"{names} {value.replace('|', chr(92) + '|') if action.metavar else value}".strip()


def _children(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()
