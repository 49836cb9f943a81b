"""Latency against throughput: kafkaprod's `send()` over linger times and batch sizes, at the sink.

    python -m benchmarks.macro.sweep [--rate 50000] [--json OUT]

For each pair: records a second and CPU a record at full speed, and p50 and p99 latency at a fixed rate.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.compare.cases import SEND
from benchmarks.far_ends import FarEnd, sink_end
from benchmarks.macro.latency import SAMPLES_PER_S, Percentiles
from benchmarks.peers.run import run
from benchmarks.peers.task import Task, write_records
from benchmarks.workloads import make_workload

TOPICS = {"sweep": 6}
LINGERS_MS = (0, 1, 5, 20, 100)
BATCH_BYTES = (16_384, 65_536, 262_144, 1_000_000)


def measure(end: FarEnd, records: Path, linger_ms: int, batch_bytes: int, rate: int) -> dict[str, Any]:
    """One pair."""

    def figures(**options: Any) -> Any:
        task = Task(
            end.bootstrap, "sweep", str(records), SEND.way, linger_ms=linger_ms, batch_bytes=batch_bytes, **options
        )
        return run(SEND, task, end, TOPICS)

    fast = figures(seconds=0.5, warm_up_s=0.2)
    paced = figures(seconds=2.0, warm_up_s=0.3, rate=rate, sample_every=max(1, rate // SAMPLES_PER_S))
    p50, p99, _ = Percentiles.of(paced.latencies_us).values
    return {
        "linger_ms": linger_ms,
        "batch_bytes": batch_bytes,
        "records_per_s": fast.rate,
        "cpu_ns": fast.cpu_ns,
        "paced_cpu_ns": paced.cpu_ns,
        "p50_ms": p50,
        "p99_ms": p99,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.sweep", description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory, sink_end(TOPICS) as end:
        records = Path(directory) / "records"
        write_records(records, make_workload(20_000, 100))
        print(f"full speed, and latency at {options.rate:,} records/s; 100-byte values, 8-byte keys, 6 partitions")
        for linger_ms in LINGERS_MS:
            for batch_bytes in BATCH_BYTES:
                row = measure(end, records, linger_ms, batch_bytes, options.rate)
                rows.append(row)
                print(
                    f"linger {linger_ms:3} ms, batch {batch_bytes:9,}: {row['records_per_s'] / 1e6:5.2f} M records/s, "
                    f"{row['cpu_ns']:5.0f} ns; paced {row['paced_cpu_ns']:6,.0f} ns, "
                    f"p50 {row['p50_ms']:7.2f} ms, p99 {row['p99_ms']:7.2f} ms",
                    flush=True,
                )
    machine.keep(options.json, "sweep", rows)


if __name__ == "__main__":
    main()
