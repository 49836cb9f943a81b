"""What a Spark program does that does not get on: the stacks of its processes, and what the cluster has open.

`report_of` is for the text of an error: whoever reads it should not have to make the stall happen again. JVMs are asked
by jstack, Python by py-spy where it is on the PATH, and otherwise by SIGUSR2 where `show_stacks_on_signal` was called;
these stacks go to the process's own standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.transactions import list_transactions
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import KafkaError

PATIENCE_S = 400.0
ENOUGH_CPU_S = 120.0  # a driver takes 45 to its first record, a small stream in a new session 15
LONGEST_S = 1800.0
_SIGNAL = signal.SIGUSR2
_MOST = 12  # processes whose stacks are shown
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def show_stacks_on_signal() -> None:
    """Make this process, and what is forked from it, write the stacks of its threads when it gets SIGUSR2."""
    faulthandler.register(_SIGNAL, all_threads=True)


def report_of(pid: int, servers: str) -> str:
    """Describe a process with all that it has started, and the open transactions of its cluster."""
    load = Path("/proc/loadavg").read_text().strip()
    parts = [f"load {load}", *(_process(one) for one in [pid, *descendants(pid)][:_MOST]), _transactions(servers)]
    return "\n".join(parts)


class Patience:
    """Says when a program has had enough time: PATIENCE_S, and then until it has used enough CPU.

    A program that gets 6 % of a processor, as at a load of 30, has not begun to send after PATIENCE_S. One that waits
    for something uses no CPU; so LONGEST_S is the limit.

    Args:
        pid: The program; all that it has started counts, too.
        patience_s: Instead of PATIENCE_S.
    """

    def __init__(self, pid: int, patience_s: float = PATIENCE_S) -> None:
        self._pid = pid
        self._patience_s = patience_s
        self._begin_s = time.monotonic()
        self._begin_cpu_s = cpu_s(pid)

    def is_over(self) -> bool:
        """Return whether it had enough time."""
        elapsed_s = time.monotonic() - self._begin_s
        if elapsed_s < self._patience_s:
            return False
        return elapsed_s > LONGEST_S or cpu_s(self._pid) - self._begin_cpu_s > ENOUGH_CPU_S


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of all that it has started."""
    ticks = 0
    for one in [pid, *descendants(pid)]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process, or one of those, has started and that still run."""
    parents = dict(_parents())
    found = [pid]
    for one in found:
        found += sorted(child for child, parent in parents.items() if parent == one)
    return found[1:]


def _parents() -> Iterator[tuple[int, int]]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(directory.name), int((directory / "stat").read_text().rpartition(")")[2].split()[1])


def _process(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:160]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"-- process {pid} has ended"
    used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    head = f"-- process {pid}, state {fields[0]}, {used_s:.1f} s of CPU: {command}"
    return f"{head}\n{_stacks(pid, is_java=os.path.basename(command.split(' ')[0]) == 'java')}"


def _stacks(pid: int, *, is_java: bool) -> str:
    py_spy, jstack = shutil.which("py-spy"), shutil.which("jstack")
    if is_java:
        return _output([jstack, str(pid)]) if jstack else "no jstack on the PATH"
    if py_spy:
        return _output([py_spy, "dump", "--pid", str(pid)])
    if _catches_signal(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _SIGNAL)
        return "its stacks are on its standard error"
    return "no py-spy on the PATH"


def _catches_signal(pid: int) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (_SIGNAL - 1) & 1)
    return False


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return done.stdout + done.stderr


def _transactions(servers: str) -> str:
    try:
        with ClusterClient(ProducerConfig.from_options({"bootstrap.servers": servers})) as client:
            found = list_transactions(client, states=_OPEN)
    except KafkaError as error:
        return f"-- transactions: {type(error).__name__}: {error}"
    return "\n".join(["-- open transactions:", *(str(listing) for listing in found)])


def last_line(error: BaseException) -> str:
    """Return the type and the last line of an error that may have no text, or none that can be had.

    An error of the JVM asks the JVM for its text, which may have ended.
    """
    try:
        lines = str(error).split("\n")
    except Exception as refusal:
        lines = [f"no text: {type(refusal).__name__}"]
    lines = [line for line in lines if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no text'}"


def await_end(query: Any, servers: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for the end of a stream that should end by itself.

    Raises:
        AssertionError: It has not; the text says what its processes do.
    """
    patience = Patience(os.getpid(), patience_s)
    while not query.awaitTermination(min(5, patience_s)):
        if patience.is_over():
            progress = query.lastProgress
            raise AssertionError(
                f"the stream does not end: {query.status}, last progress {progress}\n{report_of(os.getpid(), servers)}"
            )
    assert query.exception() is None, query.exception()
