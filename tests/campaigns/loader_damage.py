"""Cut small inputs of every format, codec and archive at every byte, and change bits in them.

Each is given to the loader's readers as a file, through a pipe and as stdin. Either all rows come, or an error; what
cannot be told by any reader is counted (docs/loading.md says why). Each input is read by a process of its own, so that
a library that ends the process by a signal is seen, and is no end of the others. Exit status 1 if anything else comes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from tests.support.loader.damage import Count, Sample, Verdict, judge, samples

_CONTEXT: Final = multiprocessing.get_context("forkserver")


def judge_apart(sample: Sample, flips: int) -> Verdict:
    """Cut an input at every byte and flip bits of it, in a process of its own; a signal that ends it is found."""
    receiving, sending = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_judge, args=(sample, flips, sending))
    process.start()
    sending.close()
    try:
        verdict: Verdict = receiving.recv()
    except EOFError:
        process.join()
        verdict = Verdict(found=[f"{sample}: the process ended with {process.exitcode}"])
    process.join()
    return verdict


def _judge(sample: Sample, flips: int, sending: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        sending.send(judge(sample, range(len(b"".join(sample.streams))), flips, Path(directory)))


def main() -> int:
    """Run as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.loader_damage", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--flips", type=int, default=1000, help="changed bits for each input")
    parser.add_argument("--only", default="", help="a part of the input's description, such as format='parquet'")
    options = parser.parse_args()
    started_s = time.monotonic()
    chosen = [sample for sample in samples() if options.only in str(sample)]
    found: list[str] = []
    table: dict[tuple[str, str], tuple[Count, Count]] = defaultdict(lambda: (Count(), Count()))
    for sample in chosen:
        verdict = judge_apart(sample, options.flips)
        found += verdict.found
        print("\n".join([*verdict.found, f"{sample}: cuts {verdict.cuts}; flips {verdict.flips}"]), flush=True)
        for sum_, count in zip(table[sample.format, sample.codec], (verdict.cuts, verdict.flips), strict=True):
            sum_.right, sum_.refused, sum_.untold = map(sum, zip(astuple(sum_), astuple(count), strict=True))
    print("in all ways:")
    for (kind, codec), (cuts, flips) in table.items():
        print(f"{kind}, {codec}: cuts {cuts}; flips {flips}")
    print(f"{len(chosen)} inputs in {time.monotonic() - started_s:.0f} s: {len(found)} not noticed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
