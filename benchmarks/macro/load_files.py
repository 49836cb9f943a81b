"""`kafkaprod load` beside the loop people write with confluent-kafka, and kcat for lines: rate and CPU per format.

    python -m benchmarks.macro.load_files [--turns 3] [--rows 1000000] [--data DIR] [--stream-gb 10] [--json OUT]

Each is a process of its own, timed from its start to its exit, imports included. They take turns against one sink;
the figures are of the best turn, with the worst in brackets. All use acks=all, idempotence, linger 5 ms. --data names a
directory with flights.csv, flights-3m.parquet, flights-200k.json …; without it flights are made up. --stream-gb sends
so many GB of lines through stdin and tells the memory used.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import machine
from benchmarks.sink import Sink

TOPIC = "load"
PARTITIONS = 6
OPTIONS = ("acks=all", "enable.idempotence=true", "linger.ms=5")
# Modules are compiled once, as pip does it, not at each start.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
FORMATS = ("lines", "jsonl", "json", "csv", "parquet", "arrow")


@dataclass(frozen=True, slots=True)
class Turn:
    """One process: rows, seconds from start to exit, CPU seconds, most memory in MB."""

    way: str
    format: str
    rows: int
    seconds: float
    cpu_s: float
    memory_mb: float


def find_files(directory: Path) -> dict[str, Path]:
    """The real files that are there, the first of each format."""
    suffixes = {"lines": ".txt", "jsonl": ".jsonl", "json": ".json", "csv": ".csv", "parquet": ".parquet"}
    suffixes["arrow"] = ".arrow"
    found = {name: sorted(directory.glob(f"*{suffix}")) for name, suffix in suffixes.items()}
    return {name: paths[0] for name, paths in found.items() if paths}


def command(way: str, bootstrap: str, format_name: str, path: Path) -> list[str]:
    """What to run."""
    options = [part for option in OPTIONS for part in ("-X", option)]
    if way == "kafkaprod load":
        where = ["-b", bootstrap, "-t", TOPIC, "-q", "--no-manifest", "--json"]
        return [sys.executable, "-m", "kafkaprod", "load", str(path), "--format", format_name, *where, *options]
    if way == "kcat":
        return ["kcat", "-P", "-b", bootstrap, "-t", TOPIC, "-l", str(path), *options]
    return [sys.executable, "-m", "benchmarks.macro.load_loop", bootstrap, TOPIC, format_name, str(path)]


def run(way: str, sink: Sink, format_name: str, path: Path) -> Turn:
    """Run once and measure."""
    sink.reset()
    started = time.perf_counter()
    process = subprocess.Popen(
        command(way, sink.bootstrap, format_name, path), stdout=subprocess.DEVNULL, env=_ENVIRONMENT
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{way} of {path} ended with {process.returncode}"
    rows = sink.counts().records
    return Turn(way, format_name, rows, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measure(files: dict[str, Path], turns: int) -> Iterator[list[Turn]]:
    """All ways of each format, by turns."""
    with Sink({TOPIC: PARTITIONS}) as sink:
        for format_name, path in files.items():
            ways = ["kafkaprod load", "loop"]
            if format_name in ("lines", "jsonl") and shutil.which("kcat"):
                ways.append("kcat")
            yield [run(way, sink, format_name, path) for _ in range(turns) for way in ways]


def show(turns: list[Turn]) -> None:
    """A line per way, with the ratio to kafkaprod's."""
    ways = list(dict.fromkeys(turn.way for turn in turns))
    best = {way: min((t for t in turns if t.way == way), key=lambda t: t.seconds) for way in ways}
    worst = {way: max(t.seconds for t in turns if t.way == way) for way in ways}
    ours = best["kafkaprod load"]
    for way in ways:
        turn = best[way]
        print(
            f"{turn.format:<8} {way:<15} {turn.rows / turn.seconds:>12,.0f} rows/s ({turn.rows / worst[way]:,.0f})  "
            f"{turn.cpu_s / turn.rows * 1e9:>8,.0f} ns CPU a row  {turn.memory_mb:>6.0f} MB   "
            f"x{turn.seconds / ours.seconds * ours.rows / turn.rows:.1f} rate, "
            f"x{turn.cpu_s / turn.rows / (ours.cpu_s / ours.rows):.1f} CPU",
            flush=True,
        )


def stream(gigabytes: float) -> None:
    """Send lines through stdin and tell the memory used."""
    piece = b"".join(b"line %09d of a stream that does not fit into memory, not by far, whatever one does\n" % i
                     for i in range(100_000))  # fmt: skip
    with Sink({TOPIC: PARTITIONS}) as sink:
        started = time.perf_counter()
        process = subprocess.Popen(command("kafkaprod load", sink.bootstrap, "lines", Path("-")), stdin=subprocess.PIPE)
        assert process.stdin is not None
        for _ in range(int(gigabytes * 1e9 / len(piece)) + 1):
            process.stdin.write(piece)
        process.stdin.close()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        seconds = time.perf_counter() - started
        print(
            f"{gigabytes:g} GB through stdin: {sink.counts().records:,} records in {seconds:.1f} s, "
            f"{gigabytes * 1000 / seconds:,.0f} MB/s, at most {usage.ru_maxrss / 1024:.0f} MB of memory"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.macro.load_files", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--stream-gb", type=float)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.stream_gb is not None:
        stream(options.stream_gb)
        return
    results: list[Turn] = []
    with tempfile.TemporaryDirectory() as directory:
        # In another process: what this one has in memory counts as its children's highest use.
        if options.data is None:
            subprocess.run(
                [sys.executable, "-m", "benchmarks.macro.load_data", directory, str(options.rows)], check=True
            )
        files = find_files(options.data or Path(directory))
        for turns in measure({k: v for k, v in files.items() if k in options.formats.split(",")}, options.turns):
            show(turns)
            results += turns
    machine.keep(options.json, "turns", [asdict(turn) for turn in results])


if __name__ == "__main__":
    main()
