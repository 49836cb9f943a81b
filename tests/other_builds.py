"""The tests with another build of the core, or another Python.

    python -m tests.other_builds debug            # assertions, bounds checks, freed memory poisoned with 0xDD
    python -m tests.other_builds python3.13       # this interpreter, in a virtual environment of its own

A copy of the tree in tests/.cache is built; the tree's own build stays as it is. What follows `--` goes to pytest
instead of the usual tests: `python -m tests.other_builds debug -- -x tests/unit/_core/queues/test_batch.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.support.builds.tree_copy import copy_tree

DEBUG_TESTS = ["tests/unit", "tests/property", "tests/stress"]
PYTHON_TESTS = [
    *("tests/unit", "tests/property", "tests/conformance", "tests/stress"),
    *(f"tests/integration/test_{name}.py" for name in ("producer_api", "producer_asyncio", "connections")),
]


def build_debug() -> tuple[Path, str]:
    """Build the copy for debugging; return its directory and the interpreter."""
    directory = copy_tree("build-debug")
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=directory, env=os.environ | {"KAFKAPROD_DEBUG": "1"}, check=True)
    return directory, sys.executable


def build_for(python: str) -> tuple[Path, str]:
    """Install the copy, editable and with what its tests need, into a virtual environment; return as `build_debug`."""
    directory = copy_tree(f"build-{Path(python).name}")
    environment = directory / ".venv"
    own_python = str(environment / "bin" / "python")
    if not Path(own_python).exists():
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
    subprocess.run([own_python, "-m", "pip", "install", "-q", "-e", ".[dev-all]"], cwd=directory, check=True)
    return directory, own_python


def main() -> int:
    """Build and run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.other_builds", description=__doc__.partition("\n")[0])
    parser.add_argument("build", help="debug, or an interpreter: python3.13, or a path")
    parser.add_argument("pytest_arguments", nargs="*", help="other tests or options than the usual ones")
    arguments = parser.parse_args()
    is_debug = arguments.build == "debug"
    directory, python = build_debug() if is_debug else build_for(arguments.build)
    tests = arguments.pytest_arguments or (DEBUG_TESTS if is_debug else PYTHON_TESTS)
    return subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=directory, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
