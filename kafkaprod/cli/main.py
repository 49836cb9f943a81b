"""The tree of subcommands.

A subcommand is a module with `add_parser(subparsers)`, which adds its parser and sets `run` on it: a function that
takes the parsed arguments and returns the exit code. Only the module of the command that is called is imported: most of
a short command's time is imports. Errors a user can act on are KafkaError or OSError, printed as one line. The exit
code is 2 if the command was refused before anything was done (ConfigError, as argparse has it for arguments), 1 if what
was begun failed; Ctrl-C is 130, SIGTERM 143.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from kafkaprod import __version__
from kafkaprod.cli.terminal import INTERRUPTED, Signals, abandon_stdout, coloured, forget_interrupts, prepare_process
from kafkaprod.cli.wrong_lines import meant, similar, suggestion, unknown_option
from kafkaprod.errors import ConfigError, KafkaError, TopicNotFoundError
from kafkaprod.text import printable, why_unsendable

# numpy's linear algebra, which nothing here uses, would start a thread a core, each of which spins for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

COMMANDS: Final = (
    "quickstart",
    "load",
    "produce",
    "tail",
    "topics",
    "transactions",
    "writes",
    "spool",
    "doctor",
    "perf",
    "broker",
    "cluster",
    "completions",
    "man",
)
REFUSED: Final = 2
SOME_BAD_ROWS: Final = 3
HELP: Final = "help"
VERSION: Final = "--version"
EXAMPLES: Final = "examples:\n"


class HelpFormatter(argparse.HelpFormatter):
    """Fills texts to the width of the terminal, but leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled, mark, examples = text.partition(EXAMPLES)
        parts = [super()._fill_text(filled, width, indent)] if filled.strip() else []
        return "\n\n".join([*parts, f"{mark}{examples}"] if mark else parts)


class CommandParser(argparse.ArgumentParser):
    """Names a mistake in a line, not under a page of flags."""

    def __init__(self, *args: Any, **options: Any) -> None:
        defaults: dict[str, Any] = {"formatter_class": HelpFormatter, "allow_abbrev": False}
        super().__init__(*args, **(defaults | options))

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit."""
        self.exit(REFUSED, f"{self.prog}: {printable(message)}\nSee `{self.prog} --help`.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but refuse unknown words in the parser that knows similar ones."""
        given = sys.argv[1:] if args is None else list(args)
        branch = next((action for action in self._actions if isinstance(action, argparse._SubParsersAction)), None)
        if branch is not None:
            self._check_command(given, branch)
        elif (wrong := unknown_option(given, self._option_string_actions)) is not None:
            self._refuse(wrong)
        options, unknown = super().parse_known_args(self._without_swallowed(given), namespace)
        if unknown:
            self._refuse(unknown[0])
        return options, unknown

    def _refuse(self, word: str) -> NoReturn:
        kind = "option" if word.startswith("-") else "argument"
        self.error(f"unknown {kind} {word}" + suggestion(similar(word.partition("=")[0], self._option_string_actions)))

    def _check_command(self, given: list[str], branch: argparse._SubParsersAction[Any]) -> None:
        """Refuse a first word that is no command, and an option in front of the command."""
        word, kind = (given or [""])[0].partition("=")[0], str(branch.metavar).lower()
        if not given or word in branch.choices or word in self._option_string_actions:
            return
        name = meant(word, branch.choices, self._option_string_actions)
        if not word.startswith("-"):
            which = suggestion(name) or f": there are {', '.join(branch.choices)}"
            self.error(f"unknown {kind} {word!r}{which}")
        if name is not None:
            self.error(f"unknown option {word}{suggestion(name)}")
        place = next((place for place, each in enumerate(given) if each in branch.choices), len(given))
        words = [each for each in given[place : place + 2] if not each.startswith("-")]
        called = " ".join([self.prog, *(words or [kind.upper()])])
        self.error(f"{word} stands before the {kind}: options come after it, `{called} {word} ...`")

    def _without_swallowed(self, given: list[str]) -> list[str]:
        """Move flags whose value may be left out behind an argument that cannot be their value: `--dry-run FILE`."""
        if not any(not action.option_strings for action in self._actions):
            return given
        end = given.index("--") if "--" in given else len(given)
        kept: list[str] = []
        moved: list[str] = []
        for flag, after in zip(given[:end], [*given[1:end], ""], strict=False):
            action = self._option_string_actions.get(flag)
            leaves_value = action is not None and action.nargs == "?" and not self._is_value(action, after)
            (moved if leaves_value else kept).append(flag)
        return [*kept, *moved, *given[end:]]

    @staticmethod
    def _is_value(action: argparse.Action, text: str) -> bool:
        try:
            return not callable(action.type) or action.type(text) is not None
        except (argparse.ArgumentTypeError, ValueError, TypeError):
            return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; None: the process's, whose signals and output streams are set up, too.

    Returns:
        The exit code.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    called = _called(given)
    name = f"kafkaprod {given[0]}" if given else "kafkaprod"
    signals = Signals()
    try:
        if arguments is None:
            prepare_process(name, signals)
        return signals.exit_code(_run(given, called, is_own_process=arguments is None))
    except BrokenPipeError as error:
        if error.filename is not None:
            return _fail(name, error)
        return abandon_stdout()
    except (KafkaError, OSError) as error:
        return _fail(name, error)
    except UnicodeEncodeError:
        wrong = [place for place, argument in enumerate(given, 1) if why_unsendable(argument)]
        if not wrong:
            raise
        # Not itself: it may be a password.
        return _fail(name, ConfigError(f"argument {wrong[0]} of the command line is not UTF-8, as its use needs it"))
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return signals.exit_code(INTERRUPTED)
    finally:
        if arguments is None:
            forget_interrupts()


def _called(given: list[str]) -> Iterable[str]:
    """Return the commands whose modules are needed: all for the page that lists them, and for a mistyped one."""
    words = given[1:2] if given[:1] == [HELP] else given[:1]
    if words == [VERSION]:
        return ()
    return words if words and words[0] in COMMANDS else COMMANDS


def _run(given: list[str], called: Iterable[str], *, is_own_process: bool) -> int:
    build = partial(build_parser, called)
    parser = _without_collections(build) if is_own_process else build()
    if not given:
        parser.print_help()
        return REFUSED
    try:
        options = parser.parse_args([*given[1:], "--help"] if given[0] == HELP else given)
        return int(options.run(options))
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()  # so that a closed pipe is seen here, not at the exit of the process


def _fail(name: str, error: KafkaError | OSError) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    context = error.context if isinstance(error, TopicNotFoundError) else {}
    topic = context.get("topic")
    if topic is not None and "partition" not in context and "UNKNOWN_TOPIC" in text:  # as the broker answered
        text = f"topic {topic!r} does not exist, or this user may not see it; `kafkaprod topics list` shows all"
    print(f"{coloured(f'{name}:', 'red', sys.stderr)} {printable(text)}", file=sys.stderr)
    return REFUSED if isinstance(error, ConfigError) else 1


def _without_collections(load: Callable[[], argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Load modules without the garbage collector: they stay, and searching them takes a fifth of a start.

    They are also left out of the collection at the end of the process. Only for a process of our own.
    """
    gc.disable()
    try:
        return load()
    finally:
        gc.freeze()
        gc.enable()


def build_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with some commands, or all."""
    parser = CommandParser(
        prog="kafkaprod",
        description="A fast Kafka producer, and a broker for tests. `kafkaprod help COMMAND` explains a command.",
    )
    parser.add_argument(VERSION, action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        importlib.import_module(f"kafkaprod.cli.{command}").add_parser(subparsers)
    return parser


def examples(*lines: str) -> str:
    """Return the part of an epilog with command lines to copy."""
    return EXAMPLES + "".join(f"  {line}\n" for line in lines)
