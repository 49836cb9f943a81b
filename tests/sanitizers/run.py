"""Build a copy of the core with sanitizers and run its tests under them: `python -m tests.sanitizers.run address`.

The copy lives in tests/.cache/sanitize-<name>, so the working tree's own build is not disturbed; building takes minutes
the first time and follows changed sources after that. See README.md here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.sanitizers import interpreter
from tests.support.builds.tree_copy import copy_tree

CORE_TESTS = [
    "tests/unit/_core",
    "tests/unit/fuzz/test_fuzz_corpus.py",
    *[f"tests/property/test_core_{name}.py" for name in ("records", "bad_input", "machine")],
]
THREAD_TESTS = ["tests/stress/test_pool_threads.py", "tests/stress/test_core_threads.py"]


# --capture=sys lets through what the runtimes write to the file descriptor itself.
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=0", "--capture=sys", "-m", ""]
# The runtimes reserve terabytes of addresses. A huge row count must end in a MemoryError, as without them.
FUZZER = ["-m", "tests.fuzz.python_api", "--memory-limit", "0"]
INPUTS = ["-m", "tests.fuzz.inputs"]


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """What to build with, which runtime libraries the interpreter must have loaded first, and what to run."""

    flags: str
    libraries: tuple[str, ...]
    environment: dict[str, str]
    tests: list[str]
    has_own_python: bool = False


SANITIZERS = {
    "address": Sanitizer(
        "address,undefined",
        ("libasan.so", "libubsan.so", "libstdc++.so"),
        {
            # The interpreter itself leaks at exit by design; overflows and uses after free are what is looked for.
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:max_allocation_size_mb=1024",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            # Python's own allocator would hide overflows of small objects.
            "PYTHONMALLOC": "malloc",
        },
        [*CORE_TESTS, *THREAD_TESTS],
    ),
    "thread": Sanitizer(
        "thread",
        ("libtsan.so",),
        {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"},
        THREAD_TESTS,
    ),
    "races": Sanitizer(
        "thread",
        (),
        {"TSAN_OPTIONS": f"suppressions={interpreter.suppressions()}:exitcode=66", "PYTHON_GIL": "0"},
        THREAD_TESTS,
        has_own_python=True,
    ),
}


def build(name: str, sanitizer: Sanitizer, python: Path) -> Path:
    """Bring the copy up to date and build it for that interpreter; return its directory."""
    directory = copy_tree(f"sanitize-{name}")
    environment = os.environ | {"KAFKAPROD_SANITIZE": sanitizer.flags}
    if sanitizer.has_own_python:
        # To C with this interpreter, which is not ten times as slow: what is up to date is not made again.
        translate = [sys.executable, "setup.py", "--version"]
        subprocess.run(translate, cwd=directory, env=environment, check=True, stdout=subprocess.DEVNULL)
        environment |= interpreter.NO_REPORTS
    subprocess.run(
        [*prefix(sanitizer), python, "setup.py", "build_ext", "--inplace"],
        cwd=directory,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return directory


def prefix(sanitizer: Sanitizer) -> tuple[str, ...]:
    """What stands before the interpreter on the command line."""
    return interpreter.FIXED_ADDRESSES if sanitizer.has_own_python else ()


def run(directory: Path, sanitizer: Sanitizer, python: Path, arguments: list[str]) -> int:
    """Run Python in the copy with the sanitizers' runtimes loaded first; return its exit status."""
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in sanitizer.libraries
    ]
    return subprocess.run(
        [*prefix(sanitizer), python, *arguments],
        cwd=directory,
        env=os.environ | sanitizer.environment | {"LD_PRELOAD": " ".join(libraries)},
        check=False,
    ).returncode


def main() -> int:
    """Build and run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitizers.run", description=__doc__.partition("\n")[0])
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.add_argument("--fuzz", action="store_true", help="the fuzzer of the Python interface instead of tests")
    parser.add_argument(
        "--inputs", action="store_true", help="the fuzzer of messages, files and texts instead of tests"
    )
    parser.add_argument("--source", type=Path, help="of CPython 3.13 or later, for `races` the first time")
    parser.add_argument("arguments", nargs="*", help="of pytest instead of the usual tests, or of a fuzzer")
    arguments = parser.parse_args()
    sanitizer = SANITIZERS[arguments.sanitizer]
    command = FUZZER if arguments.fuzz else INPUTS if arguments.inputs else PYTEST
    usual = sanitizer.tests if command is PYTEST else []
    python = interpreter.make(arguments.source) if sanitizer.has_own_python else Path(sys.executable)
    directory = build(arguments.sanitizer, sanitizer, python)
    return run(directory, sanitizer, python, [*command, *(arguments.arguments or usual)])


if __name__ == "__main__":
    sys.exit(main())
