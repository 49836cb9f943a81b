"""The daemon of Python workers with faults at exact places of transactional tasks: `spark.python.daemon.module`.

The directory in `KAFKAPROD_FAULTS` holds the faults to come, as empty files `<kind>.<place>.<number>`. The first worker
that passes the place takes one: it renames the file to `done.<kind>.<place>.<number>`. Places are

    within   rows are acknowledged, more rows and the mark are missing
    rows     all rows are acknowledged, the mark is not sent
    mark     rows and mark are in the transaction, which is not committed
    commit   the transaction is committed, Spark does not know

and kinds `fail` (the task raises), `worker` and `executor` (killed with -9), `slow` (waits for another attempt at the
task). Each attempt that begins to write leaves a file `attempt.<micro-batch>.<partition>.<number>`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext, daemon

from kafkaprod.producer import Producer
from kafkaprod.spark import exactly_once, writing
from tests.spark.stalls import show_stacks_on_signal

VARIABLE = "KAFKAPROD_FAULTS"
PLACES = ("within", "rows", "mark", "commit")
PATIENCE_S = 30.0  # of a slow attempt; then it writes as if nothing had been


class TaskFault(RuntimeError):
    """A task fails because it should."""


def take_fault(directory: Path, place: str) -> str | None:
    """Return the kind of a fault that is due at a place, which no other worker gets."""
    for path in sorted(directory.glob(f"*.{place}.*")):
        if path.name.startswith("done."):
            continue
        try:
            path.rename(path.with_name(f"done.{path.name}"))
        except FileNotFoundError:
            continue  # another worker was faster
        return path.name.partition(".")[0]
    return None


def parent_of(pid: int) -> int:
    """Return the process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Faults:
    """What goes wrong in this worker.

    Args:
        directory: Of the faults to come.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self) -> None:
        """Note that an attempt writes."""
        (self._directory / f"attempt.{self._task()}.{self._attempt()}").touch()

    def act(self, place: str) -> None:
        """Do what is due at a place."""
        kind = take_fault(self._directory, place)
        if kind == "fail":
            raise TaskFault(f"a fault at {place}")
        if kind == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "executor":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)  # the parent of the daemon
            time.sleep(PATIENCE_S)  # the daemon ends with it, and this process with the daemon
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "slow":
            self._await_twin()

    def _await_twin(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if len(list(self._directory.glob(f"attempt.{self._task()}.*"))) > 1:
                (self._directory / f"twins.{self._task()}").touch()
                return
            time.sleep(0.05)

    def _task(self) -> str:
        context = _context()
        return f"{context.getLocalProperty('streaming.sql.batchId')}.{context.partitionId()}"

    def _attempt(self) -> int:
        return _context().attemptNumber()


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def install(faults: Faults) -> None:
    """Make the tasks of this process have the faults."""

    class FaultyProducer(Producer):
        _is_first = True

        def begin_transaction(self) -> None:
            faults.begin()
            super().begin_transaction()

        def send_table(self, *arguments: Any, **options: Any) -> Any:
            if not self._is_first:
                self.flush()
                faults.act("within")
            self._is_first = False
            return super().send_table(*arguments, **options)

        def send_offsets_to_transaction(self, *arguments: Any, **options: Any) -> None:
            faults.act("rows")
            super().send_offsets_to_transaction(*arguments, **options)

        def commit_transaction(self, timeout: float | None = None) -> None:
            faults.act("mark")
            super().commit_transaction(timeout)
            faults.act("commit")

    module: Any = exactly_once
    module.Producer = FaultyProducer
    rows: Any = writing
    rows.SMALL_BYTES = 0  # each of Spark's batches is sent by itself, so that there is a place within the rows


if __name__ == "__main__":
    show_stacks_on_signal()
    if VARIABLE in os.environ:
        install(Faults(Path(os.environ[VARIABLE])))
    daemon.manager()
