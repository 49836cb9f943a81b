"""What a comparison found, as it is kept in JSON, and the few numbers taken from it.

A ratio is taken within each turn and the median of the turns' ratios is shown: a machine that slows down for a while
slows both sides of a turn.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.compare.cases import BARE_SEND, YARDSTICK, Case
from benchmarks.peers.run import Peer
from benchmarks.peers.task import Figures, Turn


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of the turns."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """A client's turns; where it could not run, ``missing`` says why."""

    label: str
    client: str
    version: str
    settings: Mapping[str, Any]
    turns: list[Turn]
    missing: str = ""

    def spread(self, figure: Callable[[Turn], float]) -> Spread:
        """Of one figure over the turns."""
        return Spread.of([figure(turn) for turn in self.turns])


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """A case's outcome; everything in it goes to JSON and back."""

    name: str
    title: str
    far_end: str
    payload_bytes: float
    peers: list[PeerFigures]

    @classmethod
    def of(cls, case: Case, far_end: str, runs: Mapping[Peer, Sequence[Figures]], missing: Mapping[Peer, str]) -> Self:
        """From the runs of a case."""
        peers = [
            PeerFigures(
                label=peer.label,
                client=peer.client,
                version=runs[peer][0].version if peer in runs else "",
                settings=runs[peer][0].settings if peer in runs else {},
                turns=[run.turn() for run in runs.get(peer, [])],
                missing=missing.get(peer, ""),
            )
            for peer in case.peers
        ]
        workload = case.workload()
        return cls(case.name, case.title, far_end, workload.payload_bytes / len(workload.values), peers)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The opposite of `dataclasses.asdict`."""
        peers = [PeerFigures(**{**peer, "turns": [Turn(**turn) for turn in peer["turns"]]}) for peer in value["peers"]]
        return cls(**{**value, "peers": peers})

    def measured(self) -> list[PeerFigures]:
        """Peers that ran."""
        return [peer for peer in self.peers if peer.turns]

    def yardstick(self) -> PeerFigures | None:
        """The peer that ratios are to, if it ran."""
        return next((peer for peer in self.measured() if peer.label == YARDSTICK.label), None)

    def multiple(self, peer: PeerFigures) -> Spread | None:
        """Of a client's CPU time a record to that of the bare send, turn by turn; None where that did not run."""
        bare = next((each for each in self.measured() if each.label == BARE_SEND.label), None)
        if bare is None:
            return None
        return Spread.of([turn.cpu_ns / least.cpu_ns for turn, least in zip(peer.turns, bare.turns, strict=False)])

    def ratio(self, peer: PeerFigures, figure: Callable[[Turn], float]) -> Spread | None:
        """Of a client's figure to the yardstick's, turn by turn."""
        base = self.yardstick()
        if base is None:
            return None
        return Spread.of([figure(ours) / figure(theirs) for ours, theirs in zip(peer.turns, base.turns, strict=False)])


def rate(turn: Turn) -> float:
    """Records a second."""
    return turn.rate


def cpu_ns(turn: Turn) -> float:
    """CPU time a record."""
    return turn.cpu_ns


def thrift(turn: Turn) -> float:
    """How little CPU time a record takes: the more, the better."""
    return 1 / turn.cpu_ns
