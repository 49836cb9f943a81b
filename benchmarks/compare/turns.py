"""The clients of a case in turns, each run checked at the far end."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.compare.cases import TOPIC, Case
from benchmarks.compare.figures import CaseFigures
from benchmarks.far_ends import FarEnd, far_end
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
                    figures = run_once(case, peer, records, end, seconds)
                except (PeerUnavailableError, RuntimeError, subprocess.TimeoutExpired) as error:
                    missing[peer] = str(error)
                    print(f"{peer.label} is left out from turn {turn + 1} on: {error}", file=sys.stderr, flush=True)
                else:
                    runs.setdefault(peer, []).append(figures)
        return CaseFigures.of(case, end.description, runs, missing)


def run_once(case: Case, peer: Peer, records: Path, end: FarEnd, seconds: float) -> Figures:
    """One client once. Raises what `benchmarks.peers.run.run` raises."""
    options: dict[str, Any] = {"seconds": seconds, "warm_up_s": WARM_UP_S.get(peer.client, 0.3), **case.options}
    task = Task(end.bootstrap, TOPIC, str(records), peer.way, tls_ca=end.tls_ca, **options)
    with end.topics(case.topics()):
        return run(peer, task, end, case.topics())
