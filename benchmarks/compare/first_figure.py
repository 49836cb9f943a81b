"""kafkaprod beside confluent-kafka on the broker-less sink, alternating in one run; the README's figure.

    python -m benchmarks.compare.first_figure [--turns 5]

100-byte values, 8-byte keys, 6 partitions. Each turn runs every way once; the sink's record count is checked each time.
Prints best and spread of records/s and of CPU time a record, and ratios to confluent-kafka's produce().
"""

import argparse
import json
import subprocess
import sys

from benchmarks.sink import Sink

RECORDS = {"produce": 400_000, "send": 2_000_000, "send_many": 4_000_000, "send_columns": 6_000_000}
TOPIC = "bench"


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    rates: dict[str, list[float]] = {way: [] for way in RECORDS}
    costs: dict[str, list[float]] = {way: [] for way in RECORDS}
    with Sink({TOPIC: 6}) as sink:
        for _ in range(turns):
            for way, records in RECORDS.items():
                before = sink.counts().records
                command = [sys.executable, "-m", "benchmarks.compare.clients", way, sink.bootstrap, TOPIC, str(records)]
                out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
                figures = json.loads(out)
                arrived = sink.counts().records - before
                if arrived != figures["records"] + 1:  # and the one that warms up
                    raise SystemExit(f"{way}: {arrived} records arrived, {figures['records'] + 1} were sent")
                rates[way].append(figures["records"] / figures["seconds"] / 1e6)
                costs[way].append(figures["cpu_s"] / figures["records"] * 1e9)
    base_rate, base_cost = max(rates["produce"]), min(costs["produce"])
    print("way           M records/s best (all)          CPU ns/record best (all)         ratio rate  ratio CPU")
    for way in RECORDS:
        print(
            f"{way:12}  {max(rates[way]):5.2f} ({min(rates[way]):.2f}..{max(rates[way]):.2f})"
            f"   {min(costs[way]):7.0f} ({min(costs[way]):.0f}..{max(costs[way]):.0f})"
            f"   x{max(rates[way]) / base_rate:.1f}   x{base_cost / min(costs[way]):.1f}"
        )


if __name__ == "__main__":
    main()
