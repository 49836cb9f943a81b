"""What a write_id costs: CPU a row beside a plain transaction and beside neither, and milliseconds a job of ten rows.

    python -m benchmarks.macro.writes [--rows 1000000] [--turns 5] [--jobs 200]

The embedded broker is the far end. The ways take turns; CPU is that of this process with all its threads, and the
median of the turns is shown with the smallest and largest. Jobs use one producer, each with a new id; then each id
again.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine
from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker

TOPIC = {"writes": 6}
Send = Callable[..., Any]


def columns(rows: int, size: int) -> tuple[Any, Any]:
    """Values and keys as offsets and data."""
    generator = np.random.default_rng(1)
    offsets = np.arange(rows + 1, dtype=np.int64)
    return (offsets * size, generator.bytes(rows * size)), (offsets * 8, generator.bytes(rows * 8))


def measure(servers: str, rows: int, size: int, turns: int) -> dict[str, list[float]]:
    """Nanoseconds of CPU a row, by way."""
    value, key = columns(rows, size)
    found: dict[str, list[float]] = {}
    plain = Producer(bootstrap_servers=servers)
    transactional = Producer(bootstrap_servers=servers, transactional_id=f"plain-{size}")
    transactional.init_transactions()

    def once(way: str, send: Callable[[], object]) -> None:
        started = time.process_time_ns()
        send()
        found.setdefault(way, []).append((time.process_time_ns() - started) / rows)

    def neither() -> None:
        plain.send_columns("writes", value, key)
        plain.flush()

    def transaction() -> None:
        with transactional.transaction():
            transactional.send_columns("writes", value, key)

    neither()
    for turn in range(turns):
        once("neither", neither)
        once("transaction", transaction)
        for verify in ("none", "count", "content"):
            write_id = f"{size}-{verify}-{turn}"
            once(
                f"write_id, verify={verify}",
                lambda write_id=write_id, verify=verify: plain.send_columns(  # type: ignore[misc]
                    "writes", value, key, write_id=write_id, verify=verify
                ),
            )
    transactional.close()
    plain.close()
    return found


def measure_jobs(servers: str, jobs: int) -> dict[str, list[float]]:
    """Milliseconds a job of ten rows, by way."""
    rows = [b"%d" % row for row in range(10)]
    found: dict[str, list[float]] = {"neither": [], "write_id": [], "already written": []}
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for way, options in (("neither", False), ("write_id", True), ("already written", True)):
            for job in range(jobs):
                started = time.perf_counter_ns()
                if options:
                    producer.send_many("writes", rows, write_id=f"job-{job}")
                else:
                    producer.send_many("writes", rows).result()
                found[way].append((time.perf_counter_ns() - started) / 1e6)
    return found


def show(title: str, unit: str, found: dict[str, list[float]]) -> None:
    """Print a table."""
    print(f"\n{title}")
    for way, values in found.items():
        middle = statistics.median(values)
        print(f"{way:30} {middle:8.1f} {unit} ({min(values):.1f}-{max(values):.1f})")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.writes", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=200)
    arguments = parser.parse_args()
    print(machine.describe())
    with EmbeddedBroker(topics=TOPIC) as broker:
        for size in (100, 1_000):
            rows = arguments.rows if size == 100 else arguments.rows // 5
            show(
                f"{rows} rows of {size} bytes",
                "ns a row",
                measure(broker.bootstrap_servers, rows, size, arguments.turns),
            )
        show(f"{arguments.jobs} jobs of 10 rows", "ms a job", measure_jobs(broker.bootstrap_servers, arguments.jobs))


if __name__ == "__main__":
    main()
