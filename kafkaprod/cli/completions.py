"""`kafkaprod completions`: what a shell needs to complete commands, flags, choices, files and options of the producer.

The scripts are made from the parsers and need nothing at run time: completing starts no Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafkaprod.cli.main import COMMANDS, build_parser, examples
from kafkaprod.config.producer_config import OPTIONS

NAME: Final = "kafkaprod"
_FILES: Final = {"FILE", "DIR", "PATH"}
_PROPERTY: Final = "NAME=VALUE"


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag or a positional argument of a command.

    Attributes:
        flags: `-t`, `--topic`; empty: positional.
        takes: "nothing", "text", "optional" text, "file", "property", or "choice".
        choices: The words that it takes; of "choice" only.
        text: The help, on one line.
    """

    flags: tuple[str, ...]
    takes: str
    choices: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command: its words after the program's name, the next words, its arguments, what follows in its help."""

    path: tuple[str, ...]
    text: str
    epilog: str
    children: tuple[tuple[str, str], ...]
    arguments: tuple[Argument, ...]

    @property
    def flags(self) -> list[Argument]:
        """Arguments that are flags."""
        return [argument for argument in self.arguments if argument.flags]

    @property
    def takes_files(self) -> bool:
        """Whether a positional argument is a file."""
        return any(argument.takes == "file" for argument in self.arguments if not argument.flags)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "completions",
        help="print the completions of a shell",
        description="Prints a script that completes commands, flags, choices and options of the producer. "
        "Its place: bash, ~/.local/share/bash-completion/completions/kafkaprod; "
        "zsh, a file _kafkaprod in a directory of $fpath; fish, "
        "~/.config/fish/completions/kafkaprod.fish.",
        epilog=examples("kafkaprod completions bash", "kafkaprod completions zsh", "kafkaprod completions fish"),
    )
    parser.add_argument("shell", choices=SCRIPTS, help="the shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    print(SCRIPTS[options.shell](list(commands(build_parser(COMMANDS)))), end="")
    return 0


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[CompletedCommand]:
    """Return the parser's command and all below it."""
    branches = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    texts = {choice.dest: choice.help or "" for branch in branches for choice in branch._choices_actions}
    children = {name: child for branch in branches for name, child in branch.choices.items()}
    arguments = tuple(_argument(action) for action in parser._actions if action not in branches)
    named = tuple((name, texts.get(name, "")) for name in children)
    yield CompletedCommand(path, parser.description or "", parser.epilog or "", named, arguments)
    for name, child in children.items():
        yield from commands(child, (*path, name))


def _argument(action: argparse.Action) -> Argument:
    choices = tuple(map(str, action.choices or ()))
    if not choices and "|" in str(action.metavar):
        # Alternatives in capitals are names of values, the others values.
        choices = tuple(word for word in str(action.metavar).split("|") if word.islower())
    text = " ".join(((action.help or "") % (vars(action) | {"prog": NAME})).split())
    return Argument(tuple(action.option_strings), _takes(action, choices), choices, text)


def _takes(action: argparse.Action, choices: Sequence[str]) -> str:
    if action.nargs == 0:
        return "nothing"
    if choices:
        return "choice"
    if action.metavar == _PROPERTY:
        return "property"
    if action.metavar in _FILES or (not action.option_strings and action.dest in ("files", "file")):
        return "file"
    return "optional" if action.nargs == "?" else "text"


def _properties() -> str:
    return " ".join(f"{name.replace('_', '.')}=" for name in OPTIONS)


# -- bash --------------------------------------------------------------------------------------------------------------


def bash(found: Sequence[CompletedCommand]) -> str:
    """Return the script for bash."""
    paths = "|".join(f'"{" ".join(("", *command.path))}"' for command in found if command.path)
    return f"""\
# Completions of {NAME} for bash. Made by `{NAME} completions bash`.
_{NAME}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at="" i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
            {paths}) at="$at ${{COMP_WORDS[i]}}" ;;
        esac
    done
    [[ $cur == "=" ]] && cur=""
    case "$at:$prev" in
{chr(10).join(_bash_values(found))}
    esac
    local words="" flags="" files=""
    case "$at" in
{chr(10).join(_bash_words(found))}
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    elif [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    fi
}}
complete -F _{NAME} {NAME}
"""


def _bash_values(found: Sequence[CompletedCommand]) -> Iterator[str]:
    replies = {
        "text": "return",
        "file": 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return',
        "property": f'compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -W "{_properties()}" -- "$cur")); return',
    }
    for command in found:
        at = " ".join(("", *command.path))
        for argument in command.flags:
            patterns = "|".join(f'"{at}:{flag}"' for flag in argument.flags)
            reply = replies.get(argument.takes)
            if argument.takes == "choice":
                reply = f'COMPREPLY=($(compgen -W "{" ".join(argument.choices)}" -- "$cur")); return'
            if reply is not None:
                yield f"        {patterns}) {reply} ;;"


def _bash_words(found: Sequence[CompletedCommand]) -> Iterator[str]:
    for command in found:
        words = [name for name, _ in command.children]
        words += [word for argument in command.arguments if not argument.flags for word in argument.choices]
        flags = [flag for argument in command.flags for flag in argument.flags]
        files = " files=1" if command.takes_files else ""
        at = " ".join(("", *command.path))
        yield f'        "{at}") words="{" ".join(words)}" flags="{" ".join(flags)}"{files} ;;'


# -- zsh ---------------------------------------------------------------------------------------------------------------


def zsh(found: Sequence[CompletedCommand]) -> str:
    """Return the script for zsh."""
    return "\n".join([
        f"#compdef {NAME}",
        f"# Completions of {NAME} for zsh. Made by `{NAME} completions zsh`.",
        f"_{NAME}_properties() {{ compadd -S '' -- {_properties()} }}",
        *(line for command in found for line in _zsh_function(command)),
        f'if [[ $funcstack[1] == _{NAME} ]]; then _{NAME} "$@"; else compdef _{NAME} {NAME}; fi',
        "",
    ])  # fmt: skip


def _zsh_function(command: CompletedCommand) -> Iterator[str]:
    yield f"{_zsh_name(command.path)}() {{"
    if command.children:
        yield "  local -a names; names=("
        yield from (f"    {_quoted(f'{name}:{text}')}" for name, text in command.children)
        yield "  )"
        yield "  if (( CURRENT == 2 )); then _describe command names; return; fi"
        yield "  local word=$words[2]; shift words; (( CURRENT-- ))"
        yield '  case "$word" in'
        yield from (f"    {name}) {_zsh_name((*command.path, name))} ;;" for name, _ in command.children)
        yield "  esac"
    else:
        yield "  _arguments -s -S \\"
        yield from (f"    {spec} \\" for argument in command.arguments for spec in _zsh_specs(argument))
        yield "    '*:: :'" if not any(not argument.flags for argument in command.arguments) else "    && return"
    yield "}"


def _zsh_specs(argument: Argument) -> Iterator[str]:
    values = {
        "file": ":file:_files",
        "property": f":option:_{NAME}_properties",
        "text": ":value: ",
        "optional": "::value: ",
    }
    value = values.get(argument.takes, "")
    if argument.takes == "choice":
        value = f":choice:({' '.join(argument.choices)})"
    if not argument.flags:
        yield _quoted(f"*{value or ':value: '}")
        return
    text = re.sub(r"([\[\]:\\])", r"\\\1", argument.text)
    for flag in argument.flags:
        yield _quoted(f"*{flag}[{text}]{value}")


def _zsh_name(path: Sequence[str]) -> str:
    return "_".join(("", NAME, *path)).replace("-", "_")


# -- fish --------------------------------------------------------------------------------------------------------------


def fish(found: Sequence[CompletedCommand]) -> str:
    """Return the script for fish."""
    lines = [f"# Completions of {NAME} for fish. Made by `{NAME} completions fish`.", f"complete -c {NAME} -f"]
    for command in found:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.path)
        names = " ".join(name for name, _ in command.children)
        unseen = f"not __fish_seen_subcommand_from {names}" if names else ""
        at = "; and ".join(part for part in (seen, unseen) if part)
        lines += [
            f"complete -c {NAME} -n {_quoted(at)} -a {name} -d {_quoted(text)}" for name, text in command.children
        ]
        for argument in command.arguments:
            lines.append(f"complete -c {NAME} -n {_quoted(at)} {_fish_argument(argument)}")
    return "\n".join(lines) + "\n"


def _fish_argument(argument: Argument) -> str:
    flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags]
    takes = {"file": "-r -F", "text": "-x", "choice": f"-x -a {_quoted(' '.join(argument.choices))}"}
    takes["property"] = f"-x -a {_quoted(_properties())}"
    if not argument.flags:
        takes |= {"file": "-F", "text": "", "choice": f"-a {_quoted(' '.join(argument.choices))}"}
    return " ".join([*flags, takes.get(argument.takes, ""), f"-d {_quoted(argument.text)}"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SCRIPTS: Final[dict[str, Callable[[Sequence[CompletedCommand]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
