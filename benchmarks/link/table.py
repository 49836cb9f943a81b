"""The matrix as a section of docs/figures.md: ``python -m benchmarks.link.table RESULT ...``.

It replaces the section and leaves the rest of the page; `benchmarks.compare.report` writes that, and keeps the section.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.far_ends import ROOT

Place = tuple[float, float, int]
Run = Mapping[str, Any]

PAGE = ROOT / "docs" / "figures.md"
HEADING = "## Far, slow and thin links"
_NEXT = "\n## "
_NEAR = 0.95
_OURS = "kafkaprod"
_LEAST_SHOWN = 0.005  # MB/s

_HEAD = f"""{HEADING}

Goodput in MB/s of 1,000-byte values with keys that are sent as fast as the client takes them, each client with its
default options (franz-go without compression), over real TCP through a wire of the given rate and round trip to one
sink; in brackets p50 and p99 from the call to the acknowledgement in seconds, which is the time in the client's buffer
where more is sent than the link carries. Medians where a cell was measured more than once. Bold: the most in its row,
or within 5 % of it. Rows of 1 Gbit/s depend on the processor: clients, wire and sink share its cores. At 250 ms and
100 Mbit/s or more the limit is what one connection's buffers hold ([Performance](performance.md)). Requests count when
they have arrived whole, so that a slow link can seem to carry more than it does, or nothing (0): those of franz-go have
up to 1 MB of each partition. {{failures}}
`python -m benchmarks.link --json RESULT` measures, `python -m benchmarks.link.table RESULT` writes this section.
"""


def section(results: Sequence[Mapping[str, Any]]) -> str:
    """The section: one row a cell, one column a client, whose median run it shows."""
    found = {place: {client: _median(runs) for client, runs in by.items()} for place, by in _by_place(results).items()}
    clients = list(dict.fromkeys(client for runs in found.values() for client in runs))
    clients.sort(key=lambda client: (client != _OURS, client))
    failed = sorted({client for runs in found.values() for client, run in runs.items() if run["failed"]})
    lines = [
        _HEAD.format(failures=f"Records of {', '.join(failed)} failed." if failed else "No record failed."),
        f"| link | partitions | {' | '.join(clients)} |",
        "|---|---:|" + "---:|" * len(clients),
        *(_row(place, runs, clients) for place, runs in sorted(found.items())),
        "",
        *_about(results),
    ]
    return "\n".join(lines)


def _by_place(results: Sequence[Mapping[str, Any]]) -> dict[Place, dict[str, list[Run]]]:
    found: dict[Place, dict[str, list[Run]]] = {}
    for run in (run for result in results for run in result["runs"]):
        cell = run["cell"]
        place = (cell["mbit_s"], cell["round_trip_ms"], cell["partition_count"])
        found.setdefault(place, {}).setdefault(run["client"], []).append(run)
    return found


def _median(runs: Sequence[Run]) -> Run:
    return sorted(runs, key=lambda run: float(run["mb_s"]))[(len(runs) - 1) // 2]


def _row(place: Place, runs: Mapping[str, Run], clients: Sequence[str]) -> str:
    mbit_s, round_trip_ms, count = place
    best = max(run["mb_s"] for run in runs.values())
    texts = [_text(runs[client], best) if client in runs else "" for client in clients]
    return f"| {mbit_s:g} Mbit/s, {round_trip_ms:g} ms | {count:,} | {' | '.join(texts)} |"


def _text(run: Run, best: float) -> str:
    if run["mb_s"] < _LEAST_SHOWN:
        return "0"
    goodput = f"{run['mb_s']:.2f}" if run["mb_s"] < 100 else f"{run['mb_s']:.0f}"
    if run["mb_s"] >= _NEAR * best:
        goodput = f"**{goodput}**"
    return f"{goodput} ({run['p50_ms'] / 1000:.1f}, {run['p99_ms'] / 1000:.1f})"


def _about(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    versions = {run["client"]: run["version"] for result in results for run in result["runs"]}
    yield "; ".join(f"{client} {version}" for client, version in sorted(versions.items())) + "."
    for result in results:
        about = result["machine"]
        rates = ", ".join(f"{rate:g}" for rate in sorted({run["cell"]["mbit_s"] for run in result["runs"]}))
        yield (
            f"{result['date']}, {rates} Mbit/s: {about['processor']}, {about['cores']} cores, Linux {about['kernel']}, "
            f"load {about['load_average']:.0f} while it ran; {result['seconds']:g} s a run, 5 times that at 1 Mbit/s."
        )


def with_section(page: str, text: str) -> str:
    """A page with the section in place of its old one, or before its last section."""
    place = page.find(HEADING)
    if place < 0:
        place = page.rindex(_NEXT) + 1
        return page[:place] + text + "\n\n" + page[place:]
    end = page.find(_NEXT, place + 1)
    return page[:place] + text + "\n" + (page[end:] if end >= 0 else "")


def section_of(page: str) -> str:
    """The section of a page as it is; empty: it has none."""
    place = page.find(HEADING)
    end = page.find(_NEXT, place + 1)
    return "" if place < 0 else page[place : end if end >= 0 else None].strip("\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.link.table", description=__doc__.partition(":")[0])
    parser.add_argument("results", type=Path, nargs="+", help="oldest first")
    options = parser.parse_args()
    text = section([json.loads(path.read_text()) for path in options.results])
    PAGE.write_text(with_section(PAGE.read_text(), text))


if __name__ == "__main__":
    main()
