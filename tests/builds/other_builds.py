"""The tests with another build of the core, or another Python.

    python -m tests.builds.other_builds debug            # assertions, bounds checks, freed memory poisoned with 0xDD
    python -m tests.builds.other_builds portable         # without epoll and futexes, as on macOS
    python -m tests.builds.other_builds python3.13       # this interpreter, in a virtual environment of its own

A copy of the tree in tests/.cache is built; the tree's own build stays as it is. What follows `--` goes to pytest
instead of the usual tests: `python -m tests.builds.other_builds debug -- -x tests/unit/_core/queues/test_batch.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.support.builds.tree_copy import copy_tree

PYTHON_TESTS = [
    *("tests/unit", "tests/property", "tests/conformance", "tests/stress"),
    *(f"tests/integration/test_{name}.py" for name in ("producer_api", "producer_asyncio", "connections")),
]
# The tests of each build of the core, and what the environment adds to that of the caller.
VARIANTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "debug": (["tests/unit", "tests/property", "tests/stress"], {}),
    "portable": (["tests"], {"KAFKAPROD_SELECTOR": "poll"}),
}


def build_with(kind: str) -> tuple[Path, str]:
    """Build the copy with a variable of setup.py; return its directory and the interpreter."""
    directory = copy_tree(f"build-{kind}")
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=directory, env=os.environ | {f"KAFKAPROD_{kind.upper()}": "1"}, check=True)
    return directory, sys.executable


def build_for(python: str) -> tuple[Path, str]:
    """Install the copy, editable and with what its tests need, into a virtual environment; return as `build_with`."""
    directory = copy_tree(f"build-{Path(python).name}")
    environment = directory / ".venv"
    own_python = str(environment / "bin" / "python")
    if not Path(own_python).exists():
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
    subprocess.run([own_python, "-m", "pip", "install", "-q", "-e", ".[dev-all]"], cwd=directory, check=True)
    return directory, own_python


def main() -> int:
    """Build and run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.builds.other_builds", description=__doc__.partition("\n")[0])
    parser.add_argument("build", help="debug, portable, or an interpreter: python3.13, or a path")
    parser.add_argument("pytest_arguments", nargs="*", help="other tests or options than the usual ones")
    arguments = parser.parse_args()
    is_variant = arguments.build in VARIANTS
    directory, python = build_with(arguments.build) if is_variant else build_for(arguments.build)
    usual_tests, variables = VARIANTS.get(arguments.build, (PYTHON_TESTS, {}))
    return subprocess.run(
        [python, "-m", "pytest", "-q", *(arguments.pytest_arguments or usual_tests)],
        cwd=directory,
        env=os.environ | variables,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
