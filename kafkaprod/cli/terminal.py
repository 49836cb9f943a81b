"""The process of a command: its signals, its output streams, its colours.

SIGTERM ends a command like Ctrl-C, with exit code 143. When the reader of stdout closes it (`| head`), the command ends
silently with 141. Characters that stdout cannot encode are escaped.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from types import FrameType
from typing import IO, Final

from kafkaprod.text import printable

INTERRUPTED: Final = 130
TERMINATED: Final = 143
CLOSED_PIPE: Final = 141

_COLOURS: Final = {"red": "31", "yellow": "33", "green": "32", "bold": "1"}


class Signals:
    """Turns SIGTERM into KeyboardInterrupt, so that commands need one way to stop, and remembers that it came."""

    def __init__(self) -> None:
        self.is_terminated = False

    def install(self) -> None:
        """Take over SIGTERM. Only the main thread of a process may call this."""
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.is_terminated = True
        raise KeyboardInterrupt

    def exit_code(self, code: int) -> int:
        """Return the exit code of a command that ended with `code`: SIGTERM and Ctrl-C differ there only."""
        return TERMINATED if self.is_terminated and code == INTERRUPTED else code


def forget_interrupts() -> None:
    """Let this process end with its own exit code after a KeyboardInterrupt that was handled.

    CPython notes that an interrupt passed through `exec` or `eval` of a text, as dataclasses and named tuples have when
    they are imported, even if it is caught later. `python -m` then ends with SIGINT instead of the exit code. The next
    text that is evaluated without an interrupt clears the note.
    """
    eval("None")


class LogLines(logging.Formatter):
    """Formats a warning of the package as a line of the command: `kafkaprod tail: ...`, without control characters."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def format(self, record: logging.LogRecord) -> str:
        return f"{self._command}: {printable(record.getMessage())}"


def prepare_process(command: str, signals: Signals) -> None:
    """Set up signals, streams and warnings of the process that runs a command."""
    signals.install()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(LogLines(command))
    logging.getLogger("kafkaprod").addHandler(handler)


def abandon_stdout() -> int:
    """Give up a stdout that nothing reads any more, also for the flush at exit; return the exit code."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # a stdout without a file
    return CLOSED_PIPE


def coloured(text: str, colour: str, stream: IO[str]) -> str:
    """Colour a text if the stream is a terminal and NO_COLOR is not set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"
