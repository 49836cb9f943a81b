"""One case over several comparisons: the lowest and highest of their medians.

A host, a kernel or an hour moves every figure. What is shown of several comparisons is therefore a range over their
medians, and a ratio is a range over the comparisons' ratios, never a ratio of two comparisons.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from benchmarks.compare.figures import CaseFigures, PeerFigures, Spread, cpu_ns, rate, thrift
from benchmarks.peers.task import Turn

HEAD = ("client", "records/s", "CPU ns a record", "rate, times", "CPU efficiency, times", "CPU, bare sends", "MiB")

Measured: TypeAlias = tuple[CaseFigures, PeerFigures]


def range_rows(cases: Sequence[CaseFigures]) -> Iterator[list[str]]:
    """A row for each client that any of the comparisons of one case measured, in the order of the last one."""
    by_label: dict[str, list[Measured]] = {}
    for case in reversed(cases):
        for peer in case.measured():
            by_label.setdefault(peer.label, []).append((case, peer))
    for label, runs in by_label.items():
        yield [
            label,
            f"{_range(_medians(runs, rate), _in_millions)} M",
            _range(_medians(runs, cpu_ns), _whole),
            _range(_ratios(runs, rate), _times),
            _range(_ratios(runs, thrift), _times),
            _range([_median(case.multiple(peer)) for case, peer in runs], _times),
            _whole(max(peer.spread(lambda turn: turn.max_rss_mb).high for _, peer in runs)),
        ]


def versions(cases: Sequence[CaseFigures]) -> list[str]:
    """Each client and the versions that were measured of it, one a line."""
    found: dict[str, set[str]] = {}
    for case in cases:
        for peer in case.measured():
            found.setdefault(peer.label.split(" ")[0], set()).add(peer.version)
    named = {name: sorted(each - {"", "none"}) for name, each in found.items()}
    return [f"- {name} {' and '.join(each)}" for name, each in named.items() if each]


def _medians(runs: Sequence[Measured], figure: Callable[[Turn], float]) -> list[float | None]:
    return [peer.spread(figure).median for _, peer in runs]


def _ratios(runs: Sequence[Measured], figure: Callable[[Turn], float]) -> list[float | None]:
    return [_median(case.ratio(peer, figure)) for case, peer in runs]


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _range(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    ends = [text(value) for value in (min(known), max(known))] if known else [""]
    return "-".join(dict.fromkeys(ends))


def _in_millions(value: float) -> str:
    return f"{value / 1e6:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _times(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"
