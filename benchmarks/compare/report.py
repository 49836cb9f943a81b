"""Tables and a chart from the JSON of one or more comparisons.

    python -m benchmarks.compare.report OUT.json [...] [--readme] [--svg] [--settings]

Without options it prints every case of each as a Markdown table. ``--readme`` writes the README's section and the page
of all cases, as ranges over the comparisons; ``--svg`` makes the chart of the plain case of the last one,
``--settings`` prints what each client of it was set to. Figures are medians of the turns, with
the smallest and largest; ratios are to confluent-kafka's ``produce()``, taken within each turn. "CPU, bare sends" is
the CPU time a record as a multiple of sending prebuilt requests with the same bytes, the figure that follows the host.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.cases import FRANZ_GO, JAVA, OURS, SEND, YARDSTICK
from benchmarks.compare.chart import chart
from benchmarks.compare.figures import CaseFigures, PeerFigures, Spread, rate
from benchmarks.compare.grid import PREFIX, grid_groups, grid_table
from benchmarks.compare.ranges import HEAD, range_rows, versions
from benchmarks.far_ends import ROOT
from benchmarks.link.table import section_of, with_section

README_BEGIN = "<!-- made by python -m benchmarks.compare.report: begin -->"
README_END = "<!-- end -->"
README_CASE = "table"
README_HEAD = ("client", "records/s", "times confluent-kafka", "CPU ns a record")
README_PEERS = (*OURS, YARDSTICK, JAVA, FRANZ_GO)
ALL_CASES = ROOT / "docs" / "figures.md"
ALL_CASES_HEAD = """# Figures

Every case that was compared. A range is the lowest and the highest median of the comparisons named at the end, which
ran on different hosts. The columns:

- **records/s**: records that arrived in a second, in millions (M).
- **CPU ns a record**: CPU time of the client's whole process for a record, in nanoseconds. It depends less on what else
  the machine does than the rate.
- **rate, times**: the rate as a multiple of confluent-kafka's `produce()`, turn by turn on the same machine.
- **CPU efficiency, times**: how many times less CPU a record takes than with confluent-kafka's `produce()`,
  turn by turn.
- **CPU, bare sends**: CPU time as a multiple of what it takes to send prebuilt requests with the same bytes; 1 is the
  floor.
- **MiB**: the most memory that the process had.

`benchmarks/README.md` says how it is measured; this page is written by
`python -m benchmarks.compare.report benchmarks/results/20*.json --readme`.
"""
GRID_HEAD = """## Sizes, codecs, TLS, idempotence

Each cell: records/s in millions (M), and CPU ns a record; of the last comparison, medians of its turns. "bare send"
sends prebuilt requests with the same bytes. Values are random bytes without compression, JSON with it. Behind TLS
client and decrypting proxy share the two cores: look at the CPU. The last column names who was faster or thriftier
than the best way of kafkaprod.
"""
BUSY = (
    "**The machine was busy with other work: all rates are low, and clients that need many threads or a warm virtual "
    "machine look worse than they are.**"
)
CHARTED_CASE = "table"
CHART = Path("docs/throughput.svg")


def _millions(spread: Spread) -> str:
    return f"{spread.median / 1e6:.2f} M ({spread.low / 1e6:.2f}-{spread.high / 1e6:.2f})"


def _nanoseconds(spread: Spread) -> str:
    return f"{spread.median:,.0f} ({spread.low:,.0f}-{spread.high:,.0f})"


def _times(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f}" if spread.median < 1 else f"{spread.median:.1f}"


def _row(case: CaseFigures, peer: PeerFigures) -> list[str]:
    cpu_ratio = case.ratio(peer, lambda turn: 1 / turn.cpu_ns)
    return [
        f"{peer.label} {peer.version}",
        _millions(peer.spread(lambda turn: turn.rate)),
        _nanoseconds(peer.spread(lambda turn: turn.cpu_ns)),
        _times(case.ratio(peer, lambda turn: turn.rate)),
        _times(cpu_ratio),
        _times(case.multiple(peer)),
        f"{peer.spread(lambda turn: turn.max_rss_mb).high:.0f}",
    ]


def case_lines(case: CaseFigures) -> Iterator[str]:
    """A case as aligned text."""
    yield f"\n{case.name}: {case.title}; {case.far_end}"
    rows = [list(HEAD), *(_row(case, peer) for peer in case.measured())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        first, *others = row
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        yield "  ".join(cells)
    yield from (f"not measured: {peer.label}: {peer.missing.splitlines()[0]}" for peer in case.peers if peer.missing)


def _table(rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield "|---|" + "---:|" * (len(HEAD) - 1)
    yield from (f"| {' | '.join(row)} |" for row in rows)


def markdown_table(case: CaseFigures) -> Iterator[str]:
    """A case as a Markdown table."""
    yield from _table(_row(case, peer) for peer in case.measured())
    yield from (f"\nNot measured: {peer.label}: {peer.missing.splitlines()[0]}." for peer in case.peers if peer.missing)


def machine_sentence(result: Mapping[str, Any]) -> str:
    """On what, when and how often it was measured."""
    about = result["machine"]
    # An average over more than the last minute: what ended just before still counts in it.
    is_busy = about["load_average"] > about["cores"] * 0.75
    return (
        f"{about['cores']} cores ({about['processor']}), {about['memory_gb']} GiB, Linux {about['kernel']}, Python "
        f"{about['python']}, load {about['load_average']:.1f} before; {result['date']}, commit {result['commit']}; "
        f"medians of {result['turns']} alternating turns of {result['seconds']:g} s with the smallest and largest."
        + is_busy
        * f" {BUSY}"
    )


def readme_section(results: Sequence[Mapping[str, Any]], cases: Mapping[str, Sequence[CaseFigures]]) -> str:
    """The README's section between its two markers: a claim with its condition, the chart, a short table."""
    rows = {row[0]: row for row in range_rows(cases[README_CASE])}
    _, rate_text, _, times, *_ = rows[SEND.label]
    dates = sorted({result["date"] for result in results})
    hosts = len({result["machine"]["processor"] for result in results})
    lines = [
        README_BEGIN,
        f"`send()` takes **{_rounded(rate_text)} M records a second from Python, {_rounded(times)} times "
        "confluent-kafka's `produce()`** on the same machine:",
        "100-byte values, two cores, acks=all, idempotent, to a sink that takes requests and stores nothing.",
        *_without_idempotence(cases),
        "",
        f"![records a second by client]({CHART})",
        "",
        f"| {' | '.join(README_HEAD)} |",
        "|---|" + "---:|" * (len(README_HEAD) - 1),
    ]
    for label in (peer.label for peer in README_PEERS if peer.label in rows):
        name, records, cpu, ratio, *_ = rows[label]
        lines.append(f"| {name} | {records} | {ratio} | {cpu} |")
    lines += [
        "",
        f"Lowest and highest median on {hosts} kinds of processor, {dates[0]} to {dates[-1]}; "
        "the chart shows the last run.",
        README_END,
    ]
    return "\n".join(lines)


def _without_idempotence(cases: Mapping[str, Sequence[CaseFigures]]) -> Iterator[str]:
    """The smaller ratio of the case that costs confluent-kafka less."""
    for row in range_rows(cases.get("not-idempotent", ())):
        if row[0] == SEND.label:
            yield f"With idempotence off for both it is {_rounded(row[3])} times."


def _rounded(text: str) -> str:
    """Turn "4.11-11.40 M" into "4-11"."""
    return "-".join(dict.fromkeys(f"{float(end):.0f}" for end in text.removesuffix(" M").split("-")))


def all_cases_page(results: Sequence[Mapping[str, Any]], cases: Mapping[str, Sequence[CaseFigures]]) -> str:
    """The page of every case."""
    lines = [ALL_CASES_HEAD]
    for name, same in cases.items():
        if not name.startswith(PREFIX):
            lines += [f"## {_title(same)}", "", *_table(range_rows(same)), ""]
    cells = [same[-1] for name, same in cases.items() if name.startswith(PREFIX)]
    if cells:
        lines.append(GRID_HEAD)
    for title, group in grid_groups(cells):
        lines += [f"### {title}", "", *grid_table(group), ""]
    every = [case for same in cases.values() for case in same]
    return "\n".join([*lines, "## Where and when", "", *run_lines(results), "", "Versions:", "", *versions(every), ""])


def run_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The comparisons that a range is over, one a line."""
    return list(
        dict.fromkeys(
            f"- {result['date']}, commit {result['commit']}: {about['processor']}, {about['cores']} cores, Linux "
            f"{about['kernel']}, Python {about['python']}"
            for result in results
            for about in [result["machine"]]
        )
    )


def _title(same: Sequence[CaseFigures]) -> str:
    last = same[-1]
    return f"{last.title[0].upper()}{last.title[1:]}, {last.far_end}"


def settings_lines(case: CaseFigures) -> Iterator[str]:
    """What each client of a case was set to."""
    for peer in case.measured():
        settings = ", ".join(f"{name}={value}" for name, value in peer.settings.items())
        yield f"- {peer.label} {peer.version}: {settings}"


def write_readme(section: str, readme: Path) -> None:
    """Replace the section. Raises ValueError if the markers are not there."""
    text = readme.read_text()
    begin, end = text.index(README_BEGIN), text.index(README_END) + len(README_END)
    readme.write_text(text[:begin] + section + text[end:])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare.report", description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="oldest first")
    parser.add_argument("--readme", action="store_true", help=f"write the README's section and {ALL_CASES.name}")
    parser.add_argument("--svg", action="store_true", help=f"write the chart {CHART}")
    parser.add_argument("--settings", action="store_true", help="print what each client was set to")
    options = parser.parse_args()
    results = [json.loads(path.read_text()) for path in options.results]
    compared = [[CaseFigures.from_json(value) for value in result["cases"]] for result in results]
    cases: dict[str, list[CaseFigures]] = {}
    for case in (case for each in compared for case in each):
        cases.setdefault(case.name, []).append(case)
    if options.readme:
        write_readme(readme_section(results, cases), ROOT / "README.md")
        page, links = all_cases_page(results, cases), section_of(ALL_CASES.read_text())
        ALL_CASES.write_text(with_section(page, links) if links else page)
    if options.svg:
        case = cases[CHARTED_CASE][-1]
        bars = [(peer.label, peer.spread(rate), peer.client == "kafkaprod_client") for peer in case.measured()]
        (ROOT / CHART).write_text(chart(bars, f"M records/s, 100-byte values, {case.far_end}"))
    if options.settings:
        print("\n".join(settings_lines(cases[CHARTED_CASE][-1])))
    if not (options.readme or options.svg or options.settings):
        for result, each in zip(results, compared, strict=True):
            print(machine_sentence(result))
            for case in each:
                print("\n".join(["", f"### {case.title}", "", f"{case.far_end}:", "", *markdown_table(case)]))


if __name__ == "__main__":
    main()
