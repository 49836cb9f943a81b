"""Plants each bug of the table in a copy of the tree, builds what it changed, and runs the tests that must notice.

python -m tests.mutants                     # all; exit status 1 if one is not noticed
python -m tests.mutants --only "varints"    # those whose name or file holds the text
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant
from tests.support.builds.tree_copy import copy_tree

COMPILED = {".pyx", ".pxd", ".h"}
TIMEOUT_S = 600


def build(directory: Path) -> None:
    """Build the compiled modules of the copy; only what changed is translated and compiled."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)


def is_noticed(directory: Path, mutant: Mutant) -> bool:
    """Plant one bug, run its tests, take it out again; return whether a test failed."""
    path = directory / "kafkaprod" / mutant.path
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        if path.suffix in COMPILED:
            build(directory)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
        done = subprocess.run(command, cwd=directory, capture_output=True, timeout=TIMEOUT_S, check=False)
        return done.returncode == 1
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return True
    finally:
        path.write_text(text)


def main() -> int:
    """Run what the arguments ask of it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of the name or of the file")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if arguments.only in mutant.name or arguments.only in mutant.path]
    directory = copy_tree("mutants")
    build(directory)
    missed = 0
    for mutant in chosen:
        started = time.monotonic()
        noticed = is_noticed(directory, mutant)
        missed += not noticed
        word = "noticed" if noticed else "NOT NOTICED"
        print(f"{word:11} {time.monotonic() - started:5.1f} s  {mutant.path}: {mutant.name}", flush=True)
    build(directory)
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
