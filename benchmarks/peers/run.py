"""Start a client, wait for its figures, and make sure at the far end that every record arrived."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.far_ends import ROOT, FarEnd
from benchmarks.peers import build
from benchmarks.peers.task import Figures, Task

TIMEOUT_S = 300.0
SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A client and one of its ways in.

    Attributes:
        client: module of this package that is its program, or ``java``, ``go``, ``rust``.
        way: see `Task.way`.
        label: its name in tables.
    """

    client: str
    way: str
    label: str

    @property
    def is_ours(self) -> bool:
        """Whether it is kafkaprod."""
        return self.client == "kafkaprod_client"


class LostRecordsError(Exception):
    """The far end has not exactly the records that the client says it sent."""


def run(peer: Peer, task: Task, far_end: FarEnd, partition_counts: Mapping[str, int]) -> Figures:
    """Run one client once.

    Raises:
        LostRecordsError: records are missing, or there are too many.
        RuntimeError: the client failed; its output is in the message.
    """
    before = far_end.arrived(partition_counts)
    done = subprocess.run(
        [*_command(peer.client), *task.arguments()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{peer.label} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    figures = Figures.from_json(done.stdout.strip().splitlines()[-1])
    expected = figures.all_records + figures.transactions * sum(partition_counts.values())
    arrived = _arrived(far_end, partition_counts, before + expected) - before
    if arrived != expected:
        raise LostRecordsError(f"{peer.label}: {arrived} records arrived, {expected} were sent; {task}")
    return figures


def _arrived(far_end: FarEnd, partition_counts: Mapping[str, int], expected: int) -> int:
    """With acks=0 the last records may still be on their way when the client ends."""
    deadline = time.monotonic() + SETTLE_S
    while (arrived := far_end.arrived(partition_counts)) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return arrived


def _command(client: str) -> Sequence[str]:
    if client in build.COMPILED:
        return build.command(client)
    return [sys.executable, "-m", f"benchmarks.peers.{client}"]
