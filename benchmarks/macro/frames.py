"""Rows a core-second of `send_table` for each kind of frame, beside what people do without it.

    python -m benchmarks.macro.frames [--rows 1000000] [--turns 3] [--frames "pandas DataFrame" ...] [--json OUT]

Beside it is the frame's own way into Kafka, where it has one (Ray's `write_kafka`), or a loop over its rows with
confluent-kafka: `json.dumps` of each row, produce, poll. Rows have six columns and go as JSON with a key to a sink in
another process; acks=all, idempotence, linger 5 ms. The ways of a frame take turns, each in a process of its own; what
the sink has counted must be all rows. A frame whose package is missing is left out. Prints a table in Markdown: the
median of the turns, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import machine
from benchmarks.macro.frame_turn import FRAMES, KEY, OURS, ways_of
from benchmarks.sink import Sink

TOPIC = "frames"
PARTITIONS = 6
FEW = 1000


@dataclass(frozen=True, slots=True)
class Turn:
    """One process: rows, seconds and CPU seconds from the call to the last acknowledgement; the machine's load."""

    frame: str
    way: str
    rows: int
    seconds: float
    cpu_s: float
    load: float


def make_file(path: Path, rows: int) -> None:
    """Write a Parquet file of orders."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    random = np.random.default_rng(1)
    table = {
        KEY: pa.array([f"order-{number:08d}" for number in range(rows)]),
        "customer": pa.array(random.integers(0, 100_000, rows)),
        "item": pa.array(random.choice(["bread", "butter", "cheese", "milk", "salt", "tea"], rows)),
        "price": pa.array(random.integers(1, 10_000, rows) / 100),
        "paid": pa.array(random.random(rows) < 0.5),
        "at": pa.array(1_700_000_000_000 + np.arange(rows)),
    }
    pyarrow.parquet.write_table(pa.table(table), path, row_group_size=100_000)


def take_turn(frame: str, way: str, sink: Sink, files: tuple[Path, Path], rows: int) -> Turn:
    """Run one process, and look at what arrived."""
    sink.reset()
    command = [sys.executable, "-m", "benchmarks.macro.frame_turn", frame, way, sink.bootstrap, TOPIC]
    done = subprocess.run([*command, *map(str, files)], stdout=subprocess.PIPE, text=True, check=True)
    arrived = sink.counts().records
    if arrived != rows + FEW:
        raise RuntimeError(f"{frame}, {way}: {arrived} records arrived, not {rows + FEW}")
    return Turn(frame, way, rows, load=os.getloadavg()[0], **json.loads(done.stdout.splitlines()[-1]))


def lines_of(frame: str, turns: Sequence[Turn]) -> list[str]:
    """The lines of a frame in the table."""
    ours = statistics.median(turn.rows / turn.cpu_s for turn in turns if turn.way == OURS)
    lines = []
    for way in dict.fromkeys(turn.way for turn in turns):
        core = sorted(turn.rows / turn.cpu_s for turn in turns if turn.way == way)
        wall = sorted(turn.rows / turn.seconds for turn in turns if turn.way == way)
        middle = statistics.median(core)
        lines.append(
            f"| {frame if way == OURS else ''} | {way} | {middle:,.0f} ({core[0]:,.0f}-{core[-1]:,.0f}) "
            f"| {statistics.median(wall):,.0f} | {'' if way == OURS else f'x{ours / middle:.1f}'} |"
        )
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.frames", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--frames", nargs="+", choices=FRAMES, default=list(FRAMES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    missing = [name for name in options.frames if importlib.util.find_spec(FRAMES[name].package) is None]
    results: list[Turn] = []
    with tempfile.TemporaryDirectory() as directory, Sink({TOPIC: PARTITIONS}) as sink:
        files = Path(directory) / "few.parquet", Path(directory) / "all.parquet"
        for path, rows in zip(files, (FEW, options.rows), strict=True):
            make_file(path, rows)
        print(
            "| frame | way | rows a core-second | rows a second | `send_table` |\n|---|---|---:|---:|---:|", flush=True
        )
        for name in options.frames:
            if name not in missing:
                turns = [
                    take_turn(name, way, sink, files, options.rows)
                    for _ in range(options.turns)
                    for way in ways_of(name)
                ]
                print("\n".join(lines_of(name, turns)), flush=True)
                results += turns
    packages = {FRAMES[turn.frame].package for turn in results} | {"confluent-kafka"}
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(packages))
    print(f"\n{versions}; {options.rows:,} rows, {options.turns} turns, load {max(turn.load for turn in results):.0f}")
    for name in missing:
        print(f"left out: {name}, which needs {FRAMES[name].package}")
    machine.keep(options.json, "turns", [asdict(turn) for turn in results])


if __name__ == "__main__":
    main()
