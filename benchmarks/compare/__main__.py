"""Compare kafkaprod with other clients: ``python -m benchmarks.compare [--quick|--full|--grid] --json OUT``.

Every client of a case runs once a turn, in a process of its own, one after the other; the far end's count of arrived
records is checked after each run. ``--quick`` (the default) is what the README's table needs: one case at the sink, one
at Apache Kafka. ``--grid`` crosses sizes, codecs, TLS and idempotence. ``python -m benchmarks.compare.report OUT``
makes tables and a chart of the JSON.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.compare.cases import CASES, Case
from benchmarks.compare.grid import GRID
from benchmarks.compare.report import case_lines
from benchmarks.compare.turns import run_case
from benchmarks.far_ends import ROOT


def measure(cases: Iterable[Case], out: Path | None, *, turns: int, seconds: float) -> None:
    """Run cases, print each, and write what there is after each: all of them take most of an hour."""
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "machine": machine.describe(),
        "turns": turns,
        "seconds": seconds,
        "cases": [],
    }
    for case in cases:
        figures = run_case(case, turns=turns, seconds=seconds)
        print("\n".join(case_lines(figures)), flush=True)
        result["cases"].append(dataclasses.asdict(figures))
        if out:
            out.write_text(json.dumps(result, indent=1) + "\n")


def _commit() -> str:
    with contextlib.suppress(OSError):
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def _chosen(names: Sequence[str], *, is_full: bool) -> list[Case]:
    by_name = {case.name: case for case in CASES}
    if unknown := set(names) - set(by_name):
        raise SystemExit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] or [case for case in CASES if is_full or case.is_quick]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.partition("\n")[0])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--quick", action="store_true", help="the cases of the README (default)")
    kind.add_argument("--full", action="store_true", help="every case")
    kind.add_argument("--grid", action="store_true", help="sizes, codecs, TLS and idempotence crossed: 48 cases")
    kind.add_argument("--case", action="append", default=[], metavar="NAME", help="one case; may be repeated")
    kind.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{case.name:20} {case.title} ({case.far_end})" for case in CASES))
        return
    cases = GRID if options.grid else _chosen(options.case, is_full=options.full)
    measure(cases, options.json, turns=options.turns, seconds=options.seconds)


if __name__ == "__main__":
    main()
