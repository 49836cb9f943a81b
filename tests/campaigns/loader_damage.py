"""Cut small inputs of every format, codec and archive at every byte, and change bits in them.

Each is given to the loader's readers as a file, through a pipe and as stdin. Either all rows come, or an error. Exit
status 1 if anything else comes. What cannot be told by any reader is in docs/loading.md, and is not tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.support.loader.damage import samples, silent


def main() -> int:
    """Run as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.loader_damage", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--flips", type=int, default=1000, help="changed bits for each input")
    parser.add_argument("--only", default="", help="a part of the input's description")
    options = parser.parse_args()
    started_s = time.monotonic()
    chosen = [sample for sample in samples() if options.only in str(sample)]
    cut_count, found = 0, []
    with tempfile.TemporaryDirectory() as directory:
        for sample in chosen:
            length = len(b"".join(sample.streams))
            cut_count += length
            found += silent(sample, range(length), options.flips, Path(directory))
    print("\n".join(found))
    seconds = time.monotonic() - started_s
    print(
        f"{len(chosen)} inputs, {cut_count:,} cuts, {len(chosen) * options.flips:,} changed bits in {seconds:.0f} s: "
        f"{len(found)} not noticed"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
