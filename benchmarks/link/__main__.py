"""Clients over links of every round trip and rate: ``python -m benchmarks.link [--seconds S] [--json OUT]``."""

import argparse
import sys
from pathlib import Path

from benchmarks.link.matrix import MBIT_S, Cell, all_clients, cells, measure
from benchmarks.link.wire import why_not


def main() -> int:
    """Command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.link", description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement, after 3 s of warm-up")
    parser.add_argument("--cell", action="append", default=[], metavar="RTT_MS,MBIT_S,PARTITIONS", help="only this one")
    parser.add_argument("--mbit-s", action="append", default=[], type=float, help="only cells of this rate")
    parser.add_argument("--client", action="append", default=[], choices=all_clients(), help="only this one")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    missing = why_not()
    if missing:
        print(f"no link can be made here: {missing}. `--far distant` of the other benchmarks needs none")
        return 1
    chosen = [_cell(text) for text in options.cell] or list(cells(options.mbit_s or MBIT_S))
    measure(chosen, options.client or all_clients(), options.seconds, options.json)
    return 0


def _cell(text: str) -> Cell:
    round_trip_ms, mbit_s, count = text.split(",")
    return Cell(float(round_trip_ms), float(mbit_s), int(count))


if __name__ == "__main__":
    sys.exit(main())
