"""`kafkaprod man`: the manual page of all commands, made from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kafkaprod import __version__
from kafkaprod.cli.completions import CompletedCommand, commands
from kafkaprod.cli.main import COMMANDS, EXAMPLES, build_parser, examples

_FILES = """\
.SH ENVIRONMENT
.TP
.B KAFKAPROD_CONFIG
A .properties file of options, where \\-F names none.
.TP
.BR NO_COLOR ", " FORCE_COLOR
No colours; colours also where the output is no terminal.
.SH EXIT STATUS
0 done; 1 what was begun failed, as the message says; 2 refused before anything was done: wrong arguments, options or
input files, or an input that is already loaded; 3 a load is complete but left rows out;
75 a load stopped for a reason that may pass; 130 and 143 interrupted by Ctrl-C and by SIGTERM; 141 the reader of stdout
closed it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "man",
        help="print the manual page",
        description="Prints the manual page of all commands. Its place: ~/.local/share/man/man1/kafkaprod.1.",
        epilog=examples("kafkaprod man"),
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the page."""
    print(manual())
    return 0


def manual() -> str:
    """Return the page in man's macros."""
    lines = [
        f'.TH KAFKAPROD 1 "" "kafkaprod {__version__}" "User Commands"',
        ".SH NAME",
        "kafkaprod \\- a fast Kafka producer, and a broker for tests",
        ".SH SYNOPSIS",
        ".B kafkaprod",
        ".I COMMAND",
        "[options]",
    ]
    for command in commands(build_parser(COMMANDS)):
        if command.path:
            lines += _section(command)
    return "\n".join([*lines, _FILES])


def _section(command: CompletedCommand) -> Iterator[str]:
    yield f".{'SH' if len(command.path) == 1 else 'SS'} {_escaped(' '.join(command.path)).upper()}"
    yield _escaped(command.text)
    for argument in command.arguments:
        names = ", ".join(argument.flags) or "arguments"
        values = f" {'|'.join(argument.choices)}" if argument.choices else ""
        yield ".TP"
        yield f"\\fB{_escaped(names)}\\fR{_escaped(values)}"
        yield _escaped(argument.text)
    text, _, shown = command.epilog.partition(EXAMPLES)
    if text.strip():
        yield ".PP"
        yield _escaped(text.strip())
    if shown:
        yield ".PP\n.nf"
        yield from (_escaped(line) for line in shown.rstrip().splitlines())
        yield ".fi"


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
