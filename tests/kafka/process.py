"""Start child processes that cannot outlive the test run."""

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The kernel kills the child when the *thread* that started it ends, so one thread that lives as long as the
# interpreter starts them all.
_starter = ThreadPoolExecutor(1, thread_name_prefix="process-starter")


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command so that the kernel kills it when the thread that starts it ends."""
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*guard, *command]


def start_process(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a command whose both outputs are appended to a file; it is killed when this interpreter ends."""

    def start() -> subprocess.Popen[bytes]:
        with output.open("ab") as file:
            return subprocess.Popen(
                guarded(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=output.parent,
            )

    return _starter.submit(start).result()
