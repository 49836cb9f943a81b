"""Plants each bug of the table in a copy of the tree, builds what it changed, and runs the tests that must notice.

python -m tests.mutants                     # all; exit status 1 if one is not noticed
python -m tests.mutants --only "varints"    # those whose name or file holds the text

The near tests (those of `python -m tests.check`) run first, the others only if the near ones did not
notice: the last line says how many bugs the short check finds. ccache is used if it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.check import NEAR_TESTS
from tests.mutants.table import MUTANTS, Mutant
from tests.support.builds.tree_copy import ROOT, copy_tree

COMPILED = {".pyx", ".pxd", ".h"}
TIMEOUT_S = 600
SHORT_CHECK = "short check"
OTHER_TESTS = "other tests"
MISSED = "NOT NOTICED"


def build(directory: Path) -> None:
    """Build the compiled modules of the copy; only what changed is translated and compiled."""
    environment = dict(os.environ)
    if "CC" not in environment and shutil.which("ccache"):
        # A planted bug is compiled once, whichever the directory of the tree.
        environment |= {"CC": "ccache cc", "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the copy does not build:\n{done.stdout}{done.stderr}")


def is_near(test: str) -> bool:
    """Whether the short check runs a test."""
    return test.startswith(NEAR_TESTS)


def fails(directory: Path, tests: list[str]) -> bool:
    """Run tests in the copy; return whether one failed, or did not end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode == 1


def notice(directory: Path, mutant: Mutant) -> str:
    """Plant one bug, run its tests, take it out again; return which tests noticed.

    Raises:
        RuntimeError: It does not compile, so that it is no bug to look for.
    """
    path = directory / "kafkaprod" / mutant.path
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        if path.suffix in COMPILED:
            build(directory)
        near = [test for test in mutant.tests if is_near(test)]
        if near and fails(directory, near):
            return SHORT_CHECK
        others = [test for test in mutant.tests if test not in near]
        return OTHER_TESTS if others and fails(directory, others) else MISSED
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
    counts: Counter[str] = Counter()
    for mutant in chosen:
        started = time.monotonic()
        noticed_by = notice(directory, mutant)
        counts[noticed_by] += 1
        print(f"{noticed_by:11} {time.monotonic() - started:5.1f} s  {mutant.path}: {mutant.name}", flush=True)
    build(directory)
    if fails(directory, sorted({test for mutant in chosen for test in mutant.tests})):
        print("the same tests fail without a bug: what was noticed says nothing")
        return 1
    print(
        f"{len(chosen) - counts[MISSED]} of {len(chosen)} planted bugs were noticed,"
        f" {counts[SHORT_CHECK]} of them by the short check"
    )
    return 1 if counts[MISSED] else 0


if __name__ == "__main__":
    sys.exit(main())
