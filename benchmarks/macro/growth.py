"""What a record costs as partitions, topics or threads become many: kafkaprod beside its peers, at the sink.

    python -m benchmarks.macro.growth [TABLE ...] [--turns 3] [--seconds 1] [--json OUT]

Each figure is records a second, CPU time of the client a record, the ratio of that to the table's first column, and
records a batch, which the sink counts. With many partitions and a linger of 5 ms a batch holds few records, and batches
are what is paid for: that is what ``partitions`` and ``topics`` show. In ``partitions-50`` and ``topics-50`` the client
lingers until it is flushed, after every 50 records a partition: batches are the same size in each column, and what is
left is the client's own growth. (They begin at a hundred: with fewer, flushes are what is measured.)

Turns go through all columns and clients; ratios are taken within a turn. Figures are medians, ``--json`` keeps spreads.
"""

import argparse
import dataclasses
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.compare.cases import FRANZ_GO, JAVA, OURS, YARDSTICK, Case
from benchmarks.compare.figures import Spread
from benchmarks.compare.turns import run_once
from benchmarks.far_ends import sink_end
from benchmarks.peers.build import PeerUnavailableError
from benchmarks.peers.run import Peer
from benchmarks.peers.task import Turn, write_records

PEERS = (YARDSTICK, *OURS, JAVA, FRANZ_GO)
_CALL_RECORDS = 20_000
_BATCH_RECORDS = 50
# Java reserves a whole batch for each partition.
_FLUSHED = {"linger_ms": 60_000, "flush_rounds": True, "batch_bytes": 16_384, "buffer_bytes": 1 << 29}


def _partitions(count: int, records: int = _CALL_RECORDS, **options: Any) -> Case:
    title = f"{count:,} partition{'s' * (count > 1)}"
    options |= {"call_records": _CALL_RECORDS}
    return Case(str(count), title, PEERS, partitions=count, records=records, options=options)


def _topics(count: int, records: int = 200_000, call_records: int = 200, **options: Any) -> Case:
    title = f"{count:,} topic{'s' * (count > 1)}"
    options |= {"topics": count, "call_records": call_records}
    return Case(str(count), title, PEERS, partitions=1, records=records, options=options)


def _threads(count: int) -> Case:
    return Case(str(count), f"{count} thread{'s' * (count > 1)}", PEERS, options={"threads": count})


TABLES = {
    "partitions": [_partitions(count) for count in (1, 10, 100, 1_000, 10_000)],
    "topics": [_topics(count) for count in (1, 100, 1_000)],
    "partitions-50": [_partitions(count, count * _BATCH_RECORDS, **_FLUSHED) for count in (100, 1_000, 10_000)],
    "topics-50": [_topics(count, count * _BATCH_RECORDS, _BATCH_RECORDS, **_FLUSHED) for count in (100, 1_000)],
    "threads": [_threads(count) for count in (1, 2, 4)],
}


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """One run: what the client measured, and how many records a batch had, those of the warm-up included."""

    turn: Turn
    records_a_batch: float


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A client in one column; ``growth`` is of its CPU time a record, to the first column's."""

    column: str
    cpu_ns: Spread
    rate: Spread
    growth: Spread
    records_a_batch: float

    @classmethod
    def of(cls, column: str, points: Sequence[Point], first: Sequence[Point]) -> "Cell":
        """From the turns of this column and of the first one."""
        return cls(
            column,
            Spread.of([point.turn.cpu_ns for point in points]),
            Spread.of([point.turn.rate for point in points]),
            Spread.of([here.turn.cpu_ns / base.turn.cpu_ns for here, base in zip(points, first, strict=True)]),
            statistics.median(point.records_a_batch for point in points),
        )

    def text(self) -> str:
        """For a line."""
        batch = f"{self.records_a_batch:,.{self.records_a_batch < 10:d}f}"
        return f"{self.rate.median / 1e6:.2f} M/s {self.cpu_ns.median:,.0f} ns x{self.growth.median:.2f} ({batch})"


def measure(columns: Sequence[Case], *, turns: int, seconds: float) -> Iterator[tuple[Peer, list[Cell]]]:
    """Yield a row a client; one that cannot run is left out, with the reason on stderr."""
    points: dict[Peer, list[list[Point]]] = {peer: [[] for _ in columns] for peer in PEERS}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ends = [stack.enter_context(sink_end(case.topics())) for case in columns]
        for case in columns:
            write_records(directory / case.name, case.workload())
        for _ in range(turns):
            for index, (case, end) in enumerate(zip(columns, ends, strict=True)):
                for peer in list(points):
                    end.sink.reset()
                    try:
                        turn = run_once(case, peer, directory / case.name, end, seconds).turn()
                    except (PeerUnavailableError, RuntimeError, subprocess.TimeoutExpired) as error:
                        print(f"{peer.label} is left out: {error}", file=sys.stderr, flush=True)
                        del points[peer]
                        continue
                    counts = end.sink.counts()
                    points[peer][index].append(Point(turn, counts.records / counts.batches))
    for peer, row in points.items():
        yield peer, [Cell.of(case.title, found, row[0]) for case, found in zip(columns, row, strict=True)]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all if none is named")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.tables or TABLES:
        columns = TABLES[name]
        print(f"\n{name:26}" + "".join(f"{case.title:>34}" for case in columns), flush=True)
        for peer, cells in measure(columns, turns=options.turns, seconds=options.seconds):
            print(f"{peer.label:26}" + "".join(f"{cell.text():>34}" for cell in cells), flush=True)
            rows.append({"table": name, "peer": peer.label, "cells": [dataclasses.asdict(cell) for cell in cells]})
    machine.keep(options.json, "growth", rows)


if __name__ == "__main__":
    main()
