"""Say what was probably meant by a word of a command line that means nothing here."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

# What other tools, and people, call it. The first that the command has is meant.
ELSEWHERE: Final = {
    **dict.fromkeys(("consume", "consumer", "console-consumer", "read", "fetch", "cat", "-C"), ("tail",)),
    **dict.fromkeys(("producer", "console-producer", "send", "publish", "-P"), ("produce",)),
    **dict.fromkeys(("list", "ls", "metadata", "-L"), ("list", "topics list")),
    **dict.fromkeys(("create", "add", "new"), ("create", "topics create")),
    **dict.fromkeys(("delete", "remove", "rm"), ("delete", "forget", "topics delete")),
    **dict.fromkeys(("describe", "show", "get", "info"), ("describe", "show", "topics describe")),
    **dict.fromkeys(("import", "upload", "copy"), ("load",)),
    **dict.fromkeys(("bench", "benchmark", "producer-perf-test"), ("perf",)),
    **dict.fromkeys(("check", "diagnose", "ping"), ("doctor",)),
    **dict.fromkeys(("server", "serve", "start", "run"), ("broker",)),
    **dict.fromkeys(("version", "-V", "-v"), ("--version",)),
}
_SHORTEST_START: Final = 3


def similar(word: str, known: Collection[str]) -> str | None:
    """Return the known word that this one is the start of, or nearly is; None: there is no such word."""
    starts = [name for name in known if len(word.lstrip("-")) >= _SHORTEST_START and name.startswith(word)]
    return next(iter(starts or difflib.get_close_matches(word, known, 1)), None)


def meant(word: str, commands: Collection[str], options: Collection[str]) -> str | None:
    """Return the command, with its action, or the option that a word probably means; None: it may be any."""
    named = (name for name in ELSEWHERE.get(word, ()) if name.split()[0] in {*commands, *options})
    return next(named, None) or similar(word, options if word.startswith("-") else commands)


def suggestion(name: str | None) -> str:
    """Return the end of a message that asks whether this was meant."""
    return "" if name is None else f"; did you mean {name}?"


def unknown_option(given: Collection[str], known: Collection[str]) -> str | None:
    """Return the first long option that is not known; None: all are."""
    for word in given:
        if word == "--":
            break
        name = word.partition("=")[0]
        if word.startswith("--") and " " not in word and name not in known:
            return name
    return None
