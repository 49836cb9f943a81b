"""Writers of pipes that die at each byte: `python -m tests.campaigns.dying_writers`.

A small input of each format is written into stdin of a load by a process that is killed with -9 behind so many bytes.
The load knows the number of rows (`--expect-rows`), or the format and the codec prove the end: then it must not be
complete, unless all rows came. The same command with `--resume` gets the whole input, and each row must be in the topic
once, in order, and nothing else. With a manifest, and in transactions. Exit status 1 if one went wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.damage import CODECS, FORMATS, ROWS
from tests.support.loader.killed_load import MANIFEST, TRANSACTIONS, Running
from tests.support.loader.load_rig import LoadRig, read_topic

PATIENCE_S: Final = 120.0
LOADS_A_TOPIC: Final = 40
MODES: Final = (MANIFEST, TRANSACTIONS)
NUMBERS: Final = "numbers"  # JSON lines of which a part is one, too
TEXTS: Final[dict[str, Callable[[], bytes]]] = {
    **{name: FORMATS[name] for name in ("lines", "jsonl", "json", "csv", "arrow stream")},
    NUMBERS: lambda: b"".join(b"%d\n" % (123_456_789 * (i + 1)) for i in range(ROWS)),
}
PROVES_END: Final = ("json", "arrow stream")  # without --expect-rows
SHUT: Final = "shut "  # before a codec: the writer of the text dies, the compressor ends its stream well


@dataclass(frozen=True)
class Kind:
    """A format behind a codec.

    Attributes:
        format: Of TEXTS.
        codec: Of CODECS, perhaps behind SHUT.
    """

    format: str
    codec: str

    def data(self, cut: int | None = None) -> bytes:
        """What the writer writes; of a shut stream, when the text was cut."""
        text = TEXTS[self.format]()
        if self.codec.startswith(SHUT):
            return CODECS[self.codec.removeprefix(SHUT)](text[:cut])
        return CODECS[self.codec](text)

    @property
    def length(self) -> int:
        """The number of places at which the writer may die, and one more."""
        return len(TEXTS[self.format]() if self.codec.startswith(SHUT) else self.data())

    @property
    def arguments(self) -> list[str]:
        """The arguments of the load."""
        kind = "jsonl" if self.format == NUMBERS else self.format.partition(" ")[0]
        is_shut = self.codec.startswith(SHUT)
        proves_end = self.format in PROVES_END or not (is_shut or self.codec == "none")
        codec = self.codec.removeprefix(SHUT)
        return [
            *("--format", kind),
            *(["--value", "raw"] if kind == "csv" else []),
            *([] if codec == "none" else ["--compression", codec]),
            *([] if proves_end else ["--expect-rows", str(ROWS)]),
        ]


def kinds() -> Iterator[Kind]:
    """What is tried."""
    for kind in TEXTS:
        yield Kind(kind, "none")
    for codec in ("gzip", "zstd", "lz4", "bz2", "xz"):
        yield Kind("lines", codec)
    for kind in ("lines", NUMBERS, "csv"):
        yield Kind(kind, f"{SHUT}zstd")


def let_die(servers: str, topic: str, kind: Kind, mode: str, cuts: Sequence[int], wanted: list[bytes]) -> Iterator[str]:
    """Let writers die, give the whole input again; yield what went wrong, or how each first load ended.

    Args:
        servers: Of the cluster.
        topic: Is made, with a partition for each load.
        kind: What is written.
        mode: Of MODES.
        cuts: Behind how many bytes.
        wanted: The rows.
    """
    with tempfile.TemporaryDirectory() as scratch:
        LoadRig(servers, Path(scratch), topic).create(len(cuts))
        ends = [_let_one_die(servers, topic, kind, mode, *place, Path(scratch)) for place in enumerate(cuts)]
    found = read_topic(servers, topic, is_committed=mode == TRANSACTIONS)
    for number, (first, code, error) in enumerate(ends):
        rows = [record.value or b"" for record in found[number]]
        if code or rows != wanted:
            yield f"wrong: {kind} {mode} cut at {cuts[number]}: exit codes {first}, {code}, {len(rows)} rows: {error}"
        else:
            yield "refused, then complete" if first else "complete"


def _let_one_die(
    servers: str, topic: str, kind: Kind, mode: str, number: int, cut: int, scratch: Path
) -> tuple[int | None, int | None, str]:
    """Return the exit codes of the load whose writer dies and of the last one, and what that said."""
    keeps = ["--state", str(scratch / str(number))]
    if mode == TRANSACTIONS:
        keeps = ["--transactional-id", f"{topic}-{number}"]
    load = ["load", "-", "-t", topic, "-b", servers, "-q", "--partition", str(number), *keeps, *kind.arguments]
    load += ["--checkpoint-interval", "0.000001"]
    part, whole = scratch / "part", scratch / "whole"
    whole.write_bytes(kind.data())
    part.write_bytes(kind.data(cut))
    first, error = _run(load, part, None if kind.codec.startswith(SHUT) else cut)
    code = first
    if code:
        code, error = _run([*load, "--resume"], whole, None)
    return first, code, error[-300:]


def _run(arguments: list[str], stdin: Path, dies_at: int | None) -> tuple[int | None, str]:
    running = Running(arguments, stdin, dies_at)
    try:
        return running.wait(PATIENCE_S)
    finally:
        running.kill()


def rows_of(servers: str, directory: Path, kind: Kind) -> list[bytes]:
    """What is in the topic of a load whose writer did not die."""
    topic = f"whole-{uuid.uuid4().hex[:8]}"
    LoadRig(servers, directory, topic).create(1)
    (directory / "whole").write_bytes(kind.data())
    code, error = _run(["load", "-", "-t", topic, "-b", servers, "-q", *kind.arguments], directory / "whole", None)
    assert code == 0, error
    rows = [record.value or b"" for record in read_topic(servers, topic)[0]]
    assert len(rows) == ROWS
    return rows


def try_all(servers: str, chosen: Sequence[Kind], cuts: Callable[[Kind], Sequence[int]], limit_s: float) -> list[str]:
    """Let writers die and print the counts; return what went wrong.

    Args:
        servers: Of the cluster.
        chosen: What is written.
        cuts: Behind how many bytes of a kind writers die.
        limit_s: None dies after this time.
    """
    began_s = time.monotonic()
    wrong: list[str] = []
    for kind in chosen:
        with tempfile.TemporaryDirectory() as scratch:
            wanted = rows_of(servers, Path(scratch), kind)
        for mode in MODES:
            counts: Counter[str] = Counter()
            for some in batched(cuts(kind), LOADS_A_TOPIC):
                if time.monotonic() - began_s > limit_s:
                    break
                ends = list(let_die(servers, f"writers-{uuid.uuid4().hex[:8]}", kind, mode, some, wanted))
                wrong += [end for end in ends if end.startswith("wrong")]
                counts.update(end.partition(":")[0] for end in ends)
            print("\n".join([*wrong, f"{kind} {mode}: {dict(counts)}"]), flush=True)
    return wrong


def batched(numbers: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    """Yield so many numbers at a time."""
    for first in range(0, len(numbers), count):
        yield numbers[first : first + count]


def main() -> int:
    """Run as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.dying_writers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--step", type=int, default=1, help="bytes between two places (default: 1)")
    parser.add_argument("--only", default="", help="a part of the input's description, such as format='csv'")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="no writer begins after this time")
    options = parser.parse_args()
    with EmbeddedBroker() as broker:
        chosen = [kind for kind in kinds() if options.only in str(kind)]
        wrong = try_all(
            broker.bootstrap_servers, chosen, lambda kind: range(0, kind.length, options.step), options.limit_s
        )
    print(f"{len(wrong)} went wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
