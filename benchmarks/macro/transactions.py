"""What a transaction costs: CPU time a record of sends with and without transactions, of three clients in one run.

    python -m benchmarks.macro.transactions --records 10000 --turns 5

Each client sends the same rounds of keyed 100-byte records to Apache Kafka in three ways, which take turns:

    plain        one round after the other, without a pause
    flush        a flush() after each round: it also waits for every outcome, as a commit does
    transaction  each round is a transaction

The ratios are taken within a turn; the median of the turns is shown with the smallest and largest. The microseconds are
what a transaction adds to its records beside each of the other ways.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.compare.cases import JAVA, SEND, SEND_MANY, TOPIC, YARDSTICK
from benchmarks.compare.turns import WARM_UP_S
from benchmarks.far_ends import FarEnd, far_end
from benchmarks.peers.run import Peer, run
from benchmarks.peers.task import Task, write_records
from benchmarks.workloads import make_workload

CLIENTS = {"send": SEND, "send_many": SEND_MANY, "confluent": YARDSTICK, "java": JAVA}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "flush": {"flush_rounds": True},
    "transaction": {"transactional": True},
}
TOPICS = {TOPIC: 6}


def run_turn(peer: Peer, records: Path, end: FarEnd, seconds: float) -> dict[str, float]:
    """Return the CPU nanoseconds a record of each way."""
    found = {}
    for name, options in WAYS.items():
        warm_up_s = WARM_UP_S.get(peer.client, 0.5)
        task = Task(end.bootstrap, TOPIC, str(records), peer.way, seconds=seconds, warm_up_s=warm_up_s, **options)
        with end.topics(TOPICS):
            found[name] = run(peer, task, end, TOPICS).cpu_ns
    return found


def report(label: str, turns: list[dict[str, float]], records: int) -> str:
    """Return a client's lines."""
    medians = {name: statistics.median(turn[name] for turn in turns) for name in WAYS}
    lines = [f"{label}: CPU ns a record " + ", ".join(f"{name} {cpu_ns:,.0f}" for name, cpu_ns in medians.items())]
    for base in ("plain", "flush"):
        ratios = sorted(turn["transaction"] / turn[base] for turn in turns)
        added_us = statistics.median((turn["transaction"] - turn[base]) * records / 1000 for turn in turns)
        lines.append(
            f"    transaction to {base:5} x{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
            f"{added_us:+,.0f} us a transaction"
        )
    return "\n".join(lines)


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.transactions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--records", type=int, default=10_000, help="of a transaction")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.clients}
    with tempfile.TemporaryDirectory() as directory, far_end("kafka1", TOPICS) as end:
        records = Path(directory) / "records"
        write_records(records, make_workload(options.records, 100, keyed=True, headers=False, content="random"))
        for turn in range(options.turns):
            for name, turns in found.items():
                turns.append(run_turn(CLIENTS[name], records, end, options.seconds))
            print(f"turn {turn + 1} of {options.turns}", flush=True)
        print(f"{options.records:,} records a transaction, {end.description}")
        for name, turns in found.items():
            print(report(CLIENTS[name].label, turns, options.records), flush=True)


if __name__ == "__main__":
    main()
