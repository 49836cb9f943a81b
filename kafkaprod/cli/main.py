"""The tree of subcommands.

A subcommand is a module with `add_parser(subparsers)`, which adds its parser and sets `run` on it: a function that
takes the parsed arguments and returns the exit code. Errors a user can act on are KafkaError or OSError: printed as
one line, exit code 1. Wrong arguments exit with 2, as argparse has it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kafkaprod import __version__
from kafkaprod.cli import broker, doctor, load, perf, produce, quickstart, tail, topics
from kafkaprod.errors import KafkaError

_COMMANDS = (quickstart, load, produce, tail, topics, doctor, perf, broker)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code. `arguments` without the program's name; None takes the process's."""
    options = _build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (KafkaError, OSError) as error:
        print(f"kafkaprod {options.command}: {error}", file=sys.stderr)
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafkaprod", description="High-throughput Kafka producer, and a broker for tests."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser
