"""Read files in a program of its own: the loader of another tree, whose code cannot be imported beside this one's, or
Spark, which needs a Java machine and perhaps another Python.

A program reads requests, a line of JSON each, and answers each with a pickle. A signal ends only the program: whoever
asks hears of it, and the next request starts it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

LIMIT_S: Final = 120


class ProgramEndedError(Exception):
    """The program ended, or took too long: it has no answer for this request, and can be given another one."""


class ReadingProgram:
    """Starts a program when it has something to do, and gives it requests one by one.

    Args:
        command: The program and its arguments.
        environment: Variables that it has besides those of this process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def ask(self, request: Mapping[str, str]) -> Any:
        """Return the answer to a request.

        Raises:
            ProgramEndedError: There is none.
        """
        if self._process is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self._environment,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], LIMIT_S)[0]:
                process.kill()
            return pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            words = self._last_words()
            self.close()
            raise ProgramEndedError(f"ended with {process.returncode}: {words}") from error

    def close(self) -> None:
        """End the program."""
        if self._process is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._errors is not None
        self._errors.close()
        self._process = None

    def _last_words(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().rpartition("\n")[2][:200]


def answer(read: Callable[[Mapping[str, str]], Any]) -> None:
    """Answer the requests of standard input with what `read` returns, until its end.

    Standard output is kept for answers: whatever else is printed goes to standard error.
    """
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin:
        pickle.dump(read(json.loads(line)), out)
        out.flush()
