"""Compare kafkaprod with other clients: ``python -m benchmarks.compare [--quick|--full] --json OUT``.

Every client of a case runs once a turn, in a process of its own, one after the other; the far end's count of arrived
records is checked after each run. ``--quick`` (the default) is what the README's table needs: one case at the sink, one
at Apache Kafka. ``python -m benchmarks.compare.report OUT`` makes tables and a chart of the JSON.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.compare.cases import CASES, TOPIC, Case
from benchmarks.compare.figures import CaseFigures
from benchmarks.compare.report import case_lines
from benchmarks.far_ends import ROOT, FarEnd, far_end
from benchmarks.peers.build import PeerUnavailableError
from benchmarks.peers.run import Peer, run
from benchmarks.peers.task import Figures, Task, write_records

# A virtual machine needs seconds until its hot code is compiled.
WARM_UP_S = {"java": 6.0}


def run_case(case: Case, *, turns: int, seconds: float) -> CaseFigures:
    """All turns of a case. A client that cannot run is left out with the reason."""
    runs: dict[Peer, list[Figures]] = {}
    missing: dict[Peer, str] = {}
    with tempfile.TemporaryDirectory() as directory, far_end(case.far_end, case.topics()) as end:
        records = Path(directory) / "records"
        write_records(records, case.workload())
        for turn in range(turns):
            for peer in case.peers:
                if peer in missing:
                    continue
                try:
                    runs.setdefault(peer, []).append(_run_once(case, peer, records, end, seconds))
                except (PeerUnavailableError, RuntimeError, subprocess.TimeoutExpired) as error:
                    missing[peer] = str(error)
                    print(f"{peer.label} is left out from turn {turn + 1} on: {error}", file=sys.stderr, flush=True)
        return CaseFigures.of(case, end.description, runs, missing)


def _run_once(case: Case, peer: Peer, records: Path, end: FarEnd, seconds: float) -> Figures:
    options: dict[str, Any] = {"seconds": seconds, "warm_up_s": WARM_UP_S.get(peer.client, 0.3), **case.options}
    task = Task(end.bootstrap, TOPIC, str(records), peer.way, **options)
    with end.topics(case.topics()):
        return run(peer, task, end, case.topics())


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
    kind.add_argument("--case", action="append", default=[], metavar="NAME", help="one case; may be repeated")
    kind.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{case.name:20} {case.title} ({case.far_end})" for case in CASES))
        return
    measure(_chosen(options.case, is_full=options.full), options.json, turns=options.turns, seconds=options.seconds)


if __name__ == "__main__":
    main()
