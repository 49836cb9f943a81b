"""The tree of subcommands.

A subcommand is a module with `add_parser(subparsers)`, which adds its parser and sets `run` on it: a function that
takes the parsed arguments and returns the exit code. Only the module of the command that is called is imported: most of
a short command's time is imports. Errors a user can act on are KafkaError or OSError: printed as one line, exit code 1.
Wrong arguments and options exit with 2, as argparse has it; Ctrl-C with 130.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from kafkaprod import __version__
from kafkaprod.errors import ConfigError, KafkaError

# numpy's linear algebra, which nothing here uses, would start a thread a core, each of which spins for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

COMMANDS: Final = ("quickstart", "load", "produce", "tail", "topics", "doctor", "perf", "broker")
WRONG_ARGUMENTS: Final = 2
INTERRUPTED: Final = 130


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong in a line, not under a page of flags."""

    def error(self, message: str) -> NoReturn:
        """Print it and exit."""
        self.exit(WRONG_ARGUMENTS, f"{self.prog}: {message}\nAll there is: {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but each parser refuses what it does not know itself: it knows what is similar."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            similar = difflib.get_close_matches(unknown[0].partition("=")[0], flags, 1)
            self.error(f"{unknown[0]} is not known" + (f": is it {similar[0]}?" if similar else ""))
        return options, unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code. `arguments` without the program's name; None takes the process's."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    called = given[:1] if given[:1] and given[0] in COMMANDS else COMMANDS
    try:
        parser = build_parser(called) if arguments is not None else _without_collections(partial(build_parser, called))
        options = parser.parse_args(given)
        return int(options.run(options))
    except KafkaError as error:
        print(f"kafkaprod {given[0]}: {error}", file=sys.stderr)
        return WRONG_ARGUMENTS if isinstance(error, ConfigError) else 1
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename is not None else error
        print(f"kafkaprod {given[0]}: {what}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"kafkaprod {given[0]}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _without_collections(load: Callable[[], argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Run what loads modules: they are there to stay, and looking for garbage among them takes a fifth of a start.

    Nor is it looked for at the end of the process. In a process of somebody else's this would be no business of ours.
    """
    gc.disable()
    try:
        return load()
    finally:
        gc.freeze()
        gc.enable()


def build_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser with some commands, or all."""
    parser = CommandParser(prog="kafkaprod", description="High-throughput Kafka producer, and a broker for tests.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        importlib.import_module(f"kafkaprod.cli.{command}").add_parser(subparsers)
    return parser
