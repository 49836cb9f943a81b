"""Round trips, rates and partitions crossed; every client in each cell, one after the other.

Goodput is what arrived at the far end between the end of the warm-up and the end of the run, by its own count.
"""

import dataclasses
import datetime
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.far_ends import ROOT
from benchmarks.link.clients import CLIENTS, COMPILED, VALUE, looked_at_every
from benchmarks.link.wire import Wire, WireSettings
from benchmarks.peers.build import link_command
from benchmarks.sink import Sink

ROUND_TRIPS_MS = (0.1, 5.0, 50.0, 250.0)
MBIT_S = (1.0, 10.0, 100.0, 1000.0)
PARTITIONS = (1, 6, 1000)
WARM_UP_S = 3.0
THIN_MBIT_S = 1.0
THIN_TIMES = 5  # so much longer than others is a run at the lowest rate, where a batch takes seconds
_START_S = 30.0
_LOOK_S = 0.02
_END_S = 0.5


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the matrix."""

    round_trip_ms: float
    mbit_s: float
    partition_count: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one client did in one cell.

    Attributes:
        cell: where.
        client: which.
        version: of it.
        mb_s: goodput: values in 10**6 bytes a second.
        p50_ms: from `send()` to the acknowledgement; -1: nothing was acknowledged.
        p99_ms: the same.
        failed: records with an error, by its name.
    """

    cell: Cell
    client: str
    version: str
    mb_s: float
    p50_ms: float
    p99_ms: float
    failed: dict[str, int]


def cells(rates: Sequence[float] = MBIT_S) -> Iterator[Cell]:
    """All with these rates, near and fast ones last."""
    for mbit_s, round_trip_ms, count in itertools.product(rates, reversed(ROUND_TRIPS_MS), PARTITIONS):
        yield Cell(round_trip_ms, mbit_s, count)


def run(cell: Cell, client: str, seconds: float, *, rate: float = 0) -> Run:
    """Run one client in one cell, over a wire and to a sink of their own."""
    settings = WireSettings(cell.round_trip_ms, cell.mbit_s)
    times = THIN_TIMES if cell.mbit_s <= THIN_MBIT_S else 1
    warm_up_s, seconds = times * WARM_UP_S, times * seconds
    topics = {"orders": cell.partition_count}
    with Wire(settings) as wire, Sink(topics, host=wire.far_host, within=wire.far) as sink:
        command = [*wire.near, *_program(client, sink.bootstrap, warm_up_s, seconds, cell.mbit_s, rate)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            arrived = _count(sink, process, warm_up_s, seconds)
            output, _ = process.communicate(timeout=_START_S)
        finally:
            process.kill()
            process.wait()
    figures = json.loads(output.splitlines()[-1])
    return Run(cell, client, mb_s=arrived * len(VALUE) / 1e6, **figures)


def _program(client: str, bootstrap: str, warm_up_s: float, seconds: float, mbit_s: float, rate: float) -> list[str]:
    arguments = [bootstrap, "orders", str(warm_up_s + seconds)]
    if client in COMPILED:
        every = looked_at_every(mbit_s, rate)
        return [*link_command(COMPILED[client]), *arguments, str(every), str(rate), str(warm_up_s)]
    options = ["--mbit-s", str(mbit_s), "--rate", str(rate), "--from-s", str(warm_up_s)]
    return [sys.executable, "-m", "benchmarks.link.clients", client, *arguments, *options]


def _count(sink: Sink, process: subprocess.Popen[str], warm_up_s: float, seconds: float) -> float:
    """Records a second that arrived after the warm-up, which begins with the first request.

    Whole batches arrive, on a slow link one every few seconds: time counts from one of them to the last, and a silence
    at the end counts as far as it is longer than those before.
    """
    deadline = time.monotonic() + _START_S
    while sink.counts().requests == 0 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    started = time.monotonic()
    arrivals: list[tuple[float, int]] = []
    while process.poll() is None and (now := time.monotonic()) < started + warm_up_s + seconds - _END_S:
        records = sink.counts().records
        if now >= started + warm_up_s and (not arrivals or records != arrivals[-1][1]):
            arrivals.append((now, records))
        time.sleep(_LOOK_S)
    return rate_of(arrivals[1:], time.monotonic())  # the first look was no arrival


def rate_of(arrivals: Sequence[tuple[float, int]], ended: float) -> float:
    """Records a second of looks that found more: (when, how many in all)."""
    if len(arrivals) < 2:
        return 0.0
    longest = max(later - earlier for (earlier, _), (later, _) in itertools.pairwise(arrivals))
    (first, before), (last, after) = arrivals[0], arrivals[-1]
    return (after - before) / (max(last, ended - longest) - first)


def measure(chosen: Sequence[Cell], clients: Sequence[str], seconds: float, out: Path | None) -> None:
    """Run the clients in the cells, print each, and write what there is after each cell."""
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": seconds,
        "runs": [],
    }
    for turn, cell in enumerate(chosen):
        shift = turn % len(clients)
        for client in (*clients[shift:], *clients[:shift]):
            done = run(cell, client, seconds)
            print(
                f"{cell.round_trip_ms:g} ms, {cell.mbit_s:g} Mbit/s, {cell.partition_count} partitions, {client}: "
                f"{done.mb_s:.3f} MB/s, p50 {done.p50_ms:.0f} ms, p99 {done.p99_ms:.0f} ms, {done.failed}",
                flush=True,
            )
            result["runs"].append(dataclasses.asdict(done))
        result["machine"] = machine.describe()  # with the load while it ran
        if out:
            out.write_text(json.dumps(result, indent=1) + "\n")


def all_clients() -> list[str]:
    """Those that are compared."""
    return [*CLIENTS, *COMPILED]
