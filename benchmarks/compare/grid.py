"""Sizes, codecs, TLS and idempotence crossed: every combination is a case of its own, and all of them are one table."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from benchmarks.compare.cases import BARE_SEND, FRANZ_GO, JAVA, OURS, YARDSTICK, Case
from benchmarks.compare.figures import CaseFigures, PeerFigures, cpu_ns, rate, thrift
from benchmarks.peers.task import Turn

PEERS = (YARDSTICK, *OURS, JAVA, FRANZ_GO)
RECORDS_BY_SIZE = {100: 20_000, 1_000: 10_000, 10_000: 2_000}
CODECS = ("none", "lz4", "zstd", "gzip")
PREFIX = "grid "


def _cell(is_idempotent: bool, far_end: str, value_bytes: int, codec: str) -> Case:
    words = [f"{value_bytes:,} B", codec, "TLS" if far_end == "tls" else "plain"]
    words.append("idempotent" if is_idempotent else "not idempotent")
    options: dict[str, object] = {} if is_idempotent else {"idempotence": False}
    if codec != "none":
        options["compression"] = codec
    content = "random" if codec == "none" else "json"
    return Case(
        PREFIX + ", ".join(words),
        ", ".join(words),
        PEERS,
        far_end,
        value_bytes,
        RECORDS_BY_SIZE[value_bytes],
        content=content,
        options=options,
    ).with_bare_send()


GRID = tuple(
    _cell(is_idempotent, far_end, value_bytes, codec)
    for is_idempotent, far_end, value_bytes, codec in itertools.product(
        (True, False), ("sink", "tls"), RECORDS_BY_SIZE, CODECS
    )
)


def grid_groups(cases: Sequence[CaseFigures]) -> Iterator[tuple[str, list[CaseFigures]]]:
    """A table for each kind of connection, with and without idempotence: their titles and cells."""
    for group, cells in itertools.groupby(cases, lambda case: case.title.split(", ")[2:]):
        yield f"{group[0][0].upper()}{group[0][1:]}, {group[1]}", list(cells)


def grid_table(cases: Sequence[CaseFigures]) -> Iterator[str]:
    """A row for each cell: what each client reached, and where one of the others is before the best of ours."""
    labels = [peer.label for peer in (*PEERS, BARE_SEND)]
    yield f"| case | {' | '.join(labels).replace(' of the same bytes', '')} | before kafkaprod |"
    yield "|---|" + "---:|" * len(labels) + "---|"
    for case in cases:
        measured = {peer.label: peer for peer in case.measured()}
        cells = [_cell_text(measured[label]) if label in measured else "" for label in labels]
        title = ", ".join(case.title.split(", ")[:2])
        yield f"| {title} | {' | '.join(cells)} | {', '.join(_before_ours(list(measured.values())))} |"


def _cell_text(peer: PeerFigures) -> str:
    return f"{_of(peer, rate) / 1e6:.2f} M, {_of(peer, cpu_ns):,.0f} ns"


def _before_ours(peers: Sequence[PeerFigures]) -> Iterator[str]:
    ours = [peer for peer in peers if peer.client == "kafkaprod_client"]
    others = [peer for peer in peers if peer not in ours and peer.label != BARE_SEND.label]
    for what, goodness in (("rate", rate), ("CPU", thrift)):
        best = max((_of(peer, goodness) for peer in ours), default=0.0)
        for peer in others:
            if best and _of(peer, goodness) > best:
                yield f"{peer.label} ({what}, x{_of(peer, goodness) / best:.2f})"


def _of(peer: PeerFigures, figure: Callable[[Turn], float]) -> float:
    return peer.spread(figure).median
