"""Load inputs of some bytes that would become any size: each is refused in a sentence, or costs what its rows do.

    python -m tests.campaigns.worst_inputs [--only avro] [--seconds 1200] [--python PYTHON]

For each format a schema or a value doubles, nests, repeats or refers (`worst_inputs` in tests/support/loader), from a
small size on, until `kafkaprod load` refuses it; then comes the largest. A load may use 256 MiB, and one that ends with
an error 5 s of CPU; it ends with 1, with 2 where nothing was made, and with a sentence. Limits of the system end what
goes far beyond that. Exit status 1 if anything else comes. `--python` loads with another interpreter, such as one with
sanitizers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.worst_inputs import worst_inputs

MOST_BYTES: Final = 256 << 20
MOST_CPU_S: Final = 5.0
_GUARD_BYTES: Final = 6 << 30
_GUARD_CPU_S: Final = 40
_LOADED_CPU_S: Final = 8.0  # a load that takes longer and has ended well is not tried with a larger input


class Ran(NamedTuple):
    """Describes what a load did: its exit status, below 0 the signal."""

    status: int
    cpu_s: float
    peak_bytes: int
    errors: str

    @property
    def words(self) -> str:
        """Return its sentence, or else its last line."""
        lines = self.errors.strip().splitlines() or [""]
        return next((line for line in reversed(lines) if line.startswith("kafkaprod load:")), lines[-1])[:200]


def run_load(command: Sequence[str], directory: Path) -> Ran:
    """Run a load; it is ended by the system if it needs far more than it may."""
    errors = directory / "errors"
    with errors.open("wb") as out:
        pid = os.fork()
        if not pid:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            if "asan" not in os.environ.get("LD_PRELOAD", ""):
                resource.setrlimit(resource.RLIMIT_AS, (_GUARD_BYTES, _GUARD_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (_GUARD_CPU_S, _GUARD_CPU_S))
            os.execv(command[0], list(command))
        _, status, usage = os.wait4(pid, 0)
    return Ran(
        os.waitstatus_to_exitcode(status),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss << 10,
        errors.read_text(errors="replace"),
    )


def fault_of(ran: Ran) -> str:
    """Return what is wrong with a load; empty: nothing."""
    if ran.status not in (0, 1, 2):
        return f"ended with {ran.status}"
    if "Traceback" in ran.errors or "runtime error:" in ran.errors or "Sanitizer" in ran.errors:
        return "ended with a traceback or a report"
    if ran.status and (not ran.words.startswith("kafkaprod load:") or len(ran.words) < 20):
        return f"ended with {ran.status} and no sentence"
    if ran.peak_bytes > MOST_BYTES:
        return f"used {ran.peak_bytes >> 20} MiB"
    return f"used {ran.cpu_s:.1f} s" if ran.status and ran.cpu_s > MOST_CPU_S else ""


def _make(number: int, directory: str, size: int) -> list[str]:
    resource.setrlimit(resource.RLIMIT_AS, (_GUARD_BYTES, _GUARD_BYTES))
    return worst_inputs()[number].make(Path(directory), size)


def grow(number: int, makers: Executor, command: Sequence[str], until_s: float) -> list[str]:
    """Load inputs of one kind, larger ones, until one is refused, and the largest; return what was wrong."""
    kind = worst_inputs()[number]
    wrong: list[str] = []
    is_refused = False
    for size in kind.sizes:
        if time.monotonic() > until_s:
            break
        if is_refused and size != kind.sizes[-1]:
            continue
        with tempfile.TemporaryDirectory() as name:
            arguments = makers.submit(_make, number, name, size).result()
            ran = run_load([*command, *arguments], Path(name))
        fault = fault_of(ran)
        line = f"{kind.format}: {kind.name}, {size:,}: {ran.status}, {ran.cpu_s:.1f} s, {ran.peak_bytes >> 20} MiB"
        print(f"{'WRONG ' if fault else ''}{line}{f' ({fault})' if fault else ''} {ran.words}", flush=True)
        if fault:
            wrong.append(f"{line}: {fault}")
        is_refused = is_refused or ran.status != 0
        if fault or ran.cpu_s > _LOADED_CPU_S:
            break
    return wrong


def main() -> int:
    """Run as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.worst_inputs", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", default="", help="a part of `format: what grows`")
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after so many")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that loads")
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    named = enumerate(f"{kind.format}: {kind.name}" for kind in worst_inputs())
    kinds = [number for number, name in named if options.only in name]
    wrong: list[str] = []
    broker_options = {"log.retention.bytes": 1 << 20, "log.segment.bytes": 1 << 20, "message.max.bytes": 20 << 20}
    with EmbeddedBroker(topics={"t": 1}, options=broker_options) as broker:
        command = [
            options.python,
            "-m",
            "kafkaprod",
            "load",
            "-t",
            "t",
            "-b",
            broker.bootstrap_servers,
            "--no-manifest",
        ]
        command += ["-X", f"max.request.size={20 << 20}"]
        for number in kinds:
            # A process that makes inputs has needed memory, which the system counts for what it starts.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as makers:
                wrong += grow(number, makers, command, until_s)
    print("\n".join([*wrong, f"{len(kinds)} kinds of inputs: {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
