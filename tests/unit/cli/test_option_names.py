"""Options of the commands: one name, long and short, for one thing in all of them."""

from __future__ import annotations

from collections import defaultdict

from kafkaprod.cli.completions import commands
from kafkaprod.cli.main import build_parser

OTHER_MEANINGS = {
    "-D": {(), ("--delimiter",)},  # of `produce` as in kcat, where it has no long name
    "-o": {("--offset",), ("--option",)},  # of `tail` as in kcat; of `broker`
}


def long_names() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the long names beside each short one, by command."""
    found: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for command in commands(build_parser()):
        for argument in command.arguments:
            for flag in argument.flags:
                if not flag.startswith("--"):
                    found[flag][" ".join(command.path)] = tuple(name for name in argument.flags if name[:2] == "--")
    return found


def test_a_short_option_means_the_same_in_every_command() -> None:
    different = {short: set(names.values()) for short, names in long_names().items() if len(set(names.values())) > 1}
    assert different == OTHER_MEANINGS


def test_commands_that_compress_batches_take_the_names_of_both_worlds() -> None:
    names = long_names()["-z"]
    assert {"load", "produce", "quickstart"} <= names.keys()
    assert set(names.values()) == {("--compression-codec", "--compression-type")}


def test_commands_of_one_topic_take_it_by_option() -> None:
    names = long_names()["-t"]
    assert {"load", "produce", "perf", "tail", "doctor", "topics create", "topics describe"} <= names.keys()
    assert set(names.values()) == {("--topic",)}
