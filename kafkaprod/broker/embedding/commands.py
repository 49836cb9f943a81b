"""The one dispatch of commands: what a process answers to a line, by a table of what it can do."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import Any

from kafkaprod.errors import KafkaError

Command = dict[str, Any]
"""A command, by its name under `command`; or an answer."""

CommandHandler = Callable[[Command], Command | None]
"""Does a command and returns its answer; None is the empty one."""


class CommandError(KafkaError):
    """A command cannot be done; the text alone goes to who sent it, without the name of the class."""


def answer_to(command: Command, handlers: Mapping[str, CommandHandler]) -> Command:
    """Do a command, and return its answer: {"error": text} if it could not be done.

    Args:
        command: A line, without its number.
        handlers: What the process can do, by the name of the command.
    """
    try:
        name = command["command"]
        if name not in handlers:
            raise CommandError(f"unknown command {name!r}: there are {', '.join(handlers)}")
        return handlers[name](command) or {}
    except CommandError as error:
        return {"error": str(error)}
    except (KafkaError, OSError, ValueError, KeyError, TypeError, queue.Empty) as error:
        return {"error": f"{type(error).__name__}: {error}"}
