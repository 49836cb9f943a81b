"""`kafkaprod quickstart`: a broker, a load, and every record read back and compared; nothing else installed."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkaprod.broker.embedded import EmbeddedBroker
from kafkaprod.cli.read_back import TopicReader
from kafkaprod.completion import BlockResult
from kafkaprod.producer import Producer

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

TOPIC: Final = "quickstart"
PARTITIONS: Final = 4
ROWS_PER_BLOCK: Final = 20_000


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "quickstart",
        help="start a broker, load records, read them back",
        description="Starts the embedded broker, loads the lines of a file (or records made up here), reads every one "
        "back and compares.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="its lines are the records; default: made-up flights")
    parser.add_argument("--records", type=int, default=500_000, metavar="N", help="how many to make up")
    parser.add_argument("--compression-type", default="none", help="none, gzip, snappy, lz4 or zstd")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load, read back, compare; exit code 1 if a single record differs."""
    lines = _flights(options.records) if options.file is None else Path(options.file).read_bytes().splitlines()
    print(f"{len(lines):,} records, {sum(map(len, lines)) / 1e6:.1f} MB")
    with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
        print(f"broker at {broker.bootstrap_servers}")
        started = time.perf_counter()
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, compression_type=options.compression_type
        ) as producer:
            results = [producer.send_columns(TOPIC, block) for block in _blocks(lines)]
            for result in results:
                result.result()
        _print_rate("sent and acknowledged", lines, started)
        started = time.perf_counter()
        wrong = _compare(broker.bootstrap_servers, lines, results)
        _print_rate("read back and compared", lines, started)
    if wrong:
        print(f"{wrong:,} records differ from what was sent")
        return 1
    print("every record is in its place. Next: `kafkaprod broker --data-dir DIR` and the first program in the README")
    return 0


def _flights(count: int) -> list[bytes]:
    random = np.random.default_rng(1)
    carriers = ("AA", "B6", "DL", "EV", "UA", "WN")
    delays = random.integers(-20, 180, count).tolist()
    picks = random.integers(0, len(carriers), count).tolist()
    return [
        json.dumps({"flight": i, "carrier": carriers[pick], "delay": delay}, separators=(",", ":")).encode()
        for i, (pick, delay) in enumerate(zip(picks, delays, strict=True))
    ]


def _blocks(lines: list[bytes]) -> Iterator[tuple[np.ndarray, bytes]]:
    """Columns (offsets, data) of ROWS_PER_BLOCK lines each."""
    for first in range(0, len(lines), ROWS_PER_BLOCK):
        rows = lines[first : first + ROWS_PER_BLOCK]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        yield offsets, b"".join(rows)


def _compare(bootstrap: str, lines: list[bytes], results: list[BlockResult]) -> int:
    """Read every partition and compare each record with the line that its block result places there."""
    partitions = np.concatenate([result.partitions for result in results])
    offsets = np.concatenate([result.offsets for result in results])
    host, _, port = bootstrap.rpartition(":")
    reader = TopicReader(host, int(port))
    wrong = 0
    try:
        for partition in range(PARTITIONS):
            rows = np.flatnonzero(partitions == partition)
            rows = rows[np.argsort(offsets[rows], kind="stable")]
            records = reader.records(TOPIC, partition, 0, len(rows))
            for row, record in zip(rows.tolist(), records, strict=True):
                wrong += record.offset != offsets[row] or record.value != lines[row]
    finally:
        reader.close()
    return wrong


def _print_rate(what: str, lines: list[bytes], started: float) -> None:
    seconds = time.perf_counter() - started
    size = sum(map(len, lines)) / 1e6
    print(f"{what} in {seconds:.2f} s: {len(lines) / seconds:,.0f} records/s, {size / seconds:.1f} MB/s")
