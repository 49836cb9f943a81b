"""Latency at a fixed rate: from the time a record was to be sent to its acknowledgement, kafkaprod beside its peers.

    python -m benchmarks.macro.latency [--far sink|kafka1|kafka3] [--turns 3] [--seconds 4] [--json OUT]

Rates: 1,000 records/s, and 10, 50 and 80 % of what the slowest client reaches at full speed in the same run. Records
are due at even distances, whatever the client does: one that holds its caller up pays for all the records that waited
(no coordinated omission). Clients take turns; each figure is the median of its turns, with the smallest and largest.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.far_ends import FAR_ENDS, FarEnd, far_end
from benchmarks.peers.run import Peer, run
from benchmarks.peers.task import Figures, Task, write_records
from benchmarks.workloads import make_workload

PEERS = (
    Peer("kafkaprod_client", "send", "kafkaprod send()"),
    Peer("confluent_client", "produce", "confluent-kafka produce()"),
    Peer("java", "send", "Java producer send()"),
)
TOPIC = {"latency": 6}
MODEST_RATE = 1_000
PARTS_OF_MAXIMUM = (0.1, 0.5, 0.8)
PERCENTILES = (50.0, 99.0, 99.9)
SAMPLES_PER_S = 5_000
# A virtual machine needs seconds until its hot code is compiled; at a low rate it sees few records a second.
WARM_UP_S = {"java": 3.0}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one run, in ms, in the order of PERCENTILES."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, latencies_us: Sequence[int]) -> "Percentiles":
        """Nearest rank."""
        ordered = sorted(latencies_us)
        ranks = (min(len(ordered) - 1, int(len(ordered) * percent / 100)) for percent in PERCENTILES)
        return cls(tuple(ordered[rank] / 1000 for rank in ranks))


def measure(end: FarEnd, records: Path, *, turns: int, seconds: float, linger_ms: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each rate and client."""

    def figures(peer: Peer, **options: Any) -> Figures:
        warm_up_s = WARM_UP_S.get(peer.client, 0.5)
        task = Task(
            end.bootstrap, "latency", str(records), peer.way, warm_up_s=warm_up_s, linger_ms=linger_ms, **options
        )
        with end.topics(TOPIC):
            return run(peer, task, end, TOPIC)

    maximum = min(figures(peer, seconds=1.0).rate for peer in PEERS)
    rates = {"1,000/s": MODEST_RATE} | {f"{part:.0%} of slowest": int(maximum * part) for part in PARTS_OF_MAXIMUM}
    for name, rate in rates.items():
        sample_every = max(1, rate // SAMPLES_PER_S)
        turns_of: dict[Peer, list[Figures]] = {peer: [] for peer in PEERS}
        for _ in range(turns):
            for peer in PEERS:
                turns_of[peer].append(figures(peer, seconds=seconds, rate=rate, sample_every=sample_every))
        for peer, runs in turns_of.items():
            yield _row(name, rate, peer, runs)


def _row(name: str, rate: int, peer: Peer, runs: Sequence[Figures]) -> dict[str, Any]:
    turns = [Percentiles.of(figures.latencies_us).values for figures in runs]
    return {
        "rate": name,
        "records_per_s": rate,
        "peer": peer.label,
        "version": runs[0].version,
        "settings": runs[0].settings,
        "samples": sum(len(figures.latencies_us) for figures in runs),
        "cpu_ns": statistics.median(figures.cpu_ns for figures in runs),
        "percentiles_ms": {
            f"p{percent:g}": {
                "median": statistics.median(values),
                "low": min(values),
                "high": max(values),
            }
            for percent, values in zip(PERCENTILES, zip(*turns, strict=True), strict=True)
        },
    }


def line(row: Mapping[str, Any]) -> str:
    """A row as text."""
    figures = "".join(
        f"  {name} {value['median']:8.2f} ({value['low']:.2f}..{value['high']:.2f})".ljust(38)
        for name, value in row["percentiles_ms"].items()
    )
    return f"{row['rate']:15} {row['records_per_s']:>9,} {row['peer']:26}{figures} CPU {row['cpu_ns']:6,.0f} ns"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--far", choices=sorted(FAR_ENDS.keys() - {"tls"}), default="sink")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--linger-ms", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory, far_end(options.far, TOPIC) as end:
        records = Path(directory) / "records"
        write_records(records, make_workload(20_000, 100))
        print(f"{end.description}; 100-byte values, 8-byte keys, 6 partitions, linger {options.linger_ms} ms; ms")
        for row in measure(end, records, turns=options.turns, seconds=options.seconds, linger_ms=options.linger_ms):
            print(line(row), flush=True)
            rows.append({"far_end": end.description, "linger_ms": options.linger_ms, **row})
    machine.keep(options.json, "latency", rows)


if __name__ == "__main__":
    main()
