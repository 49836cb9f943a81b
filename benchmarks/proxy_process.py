"""A proxy in a process of its own, because a client's CPU is measured: started, told where to forward, and ended."""

import subprocess
import sys
from pathlib import Path
from typing import Self

_REPOSITORY = Path(__file__).resolve().parent.parent


class ProxyProcess:
    """A proxy process, from construction to `close`.

    Args:
        module: run with `python -m`; prints its port, then reads the port to forward to.
        arguments: of its command line.

    Attributes:
        port: where it listens, on 127.0.0.1.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self.port = int(self._output.readline())

    def forward_to(self, port: int) -> None:
        """Say where connections go; to be called once, before the first of them."""
        self._input.write(f"{port}\n")
        self._input.flush()

    def close(self) -> None:
        """End the process; may be called twice."""
        self._input.close()
        self._process.wait(10)
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
