"""The one check command: `python -m tests.check` runs everything that must be green before a commit.

build, then in two lists side by side: format, lint, cython-lint, types, stub test, import contracts, docs and the tests
of architecture, properties and conformance; and the unit tests. `--far` runs every other test instead, in three lists:
processes, real Kafka, Spark, the wheel and the simulation. Each step is printed as it is run, so that it can be run by
hand; all run even if one fails, and the exit status is 1 if any did. Speed is measured by `python -m benchmarks.guard`,
on a quiet machine.

The extra `dev` is enough for the first, `dev-all` for `--far`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
NEAR_TESTS = ("tests/unit", "tests/property", "tests/architecture", "tests/conformance")


@dataclass(frozen=True, slots=True)
class Step:
    """A command that must succeed."""

    title: str
    command: tuple[str, ...]


# Without PySpark (the extra dev-all) its classes are Any.
WITHOUT_SPARK: tuple[str, ...] = ("--allow-subclassing-any", "--allow-untyped-decorators", "--no-warn-return-any")
WITHOUT_SPARK += ("--no-warn-unused-ignores",)
TYPES = ("mypy", "--strict", *(() if importlib.util.find_spec("pyspark") else WITHOUT_SPARK), "kafkaprod")

BUILD = Step("build", (PYTHON, "-m", "tests.support.builds.in_place"))
STATIC_STEPS = [
    Step("format", ("ruff", "format", "--check", ".")),
    Step("lint", ("ruff", "check", ".")),
    Step("cython lint", ("cython-lint", "kafkaprod")),
    Step(
        "workflow",
        (
            *(PYTHON, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"),
            ".github/workflows/ci.yml",
        ),
    ),
    Step("types", TYPES),
    Step("types on macOS", (*TYPES, "--platform", "darwin", "--cache-dir", ".mypy_cache/macos")),
    Step("types of tests", ("mypy", "--config-file", "tests/mypy.ini", "tests")),
    Step(
        "stubs",
        (
            *(PYTHON, "-m", "mypy.stubtest", "kafkaprod._core"),
            *(
                "kafkaprod.net.socket_calls",
                "kafkaprod.net.ready_files",
                "kafkaprod.net.channel",
                "kafkaprod.net.traffic",
            ),
            *("kafkaprod.protocol.outgoing", "kafkaprod.protocol.in_flight", "kafkaprod.protocol.exchange"),
            *("kafkaprod.metrics.histogram", "kafkaprod.metrics.windows", "kafkaprod.metrics.sums"),
            *("kafkaprod.metrics.recording", "kafkaprod.results.record_wait"),
            *("--mypy-config-file", "pyproject.toml"),
            *("--allowlist", "tests/stubtest_allowlist.txt", "--ignore-unused-allowlist"),
        ),
    ),
    Step("imports", ("lint-imports", "--no-logo")),
    Step("docs", (PYTHON, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "docs", "build/docs")),
    Step("search of the docs", (PYTHON, "-m", "tests.pages.search", "build/docs")),
]
UNIT_TESTS = Step("unit tests", (PYTHON, "-m", "pytest", "-q", "tests/unit"))
RULES = Step("rules and properties", (PYTHON, "-m", "pytest", "-q", *NEAR_TESTS[1:]))
# What runs side by side after the build, the steps of each list one after the other: as long as each other.
NEAR_LISTS = ([*STATIC_STEPS, RULES], [UNIT_TESTS])
NEAR_STEPS = [BUILD, *(step for steps in NEAR_LISTS for step in steps)]

CLUSTER = "tests/integration/cluster"
DOCUMENTATION = "tests/integration/test_documentation.py"
INTEGRATION_TESTS = Step(
    "integration tests",
    (
        *(PYTHON, "-m", "pytest", "-q", "--durations=10", "tests/integration"),
        *(f"--ignore={CLUSTER}", f"--ignore={DOCUMENTATION}"),
    ),
)
CLUSTER_TESTS = Step("cluster tests", (PYTHON, "-m", "pytest", "-q", CLUSTER))
DOCUMENTATION_TESTS = Step("documentation", (PYTHON, "-m", "pytest", "-q", DOCUMENTATION))
ELSEWHERE = (*NEAR_TESTS, "tests/integration", "tests/spark")
OTHER_TESTS = Step(
    "other tests",
    (*(PYTHON, "-m", "pytest", "-q", "tests"), *(f"--ignore={path}" for path in ELSEWHERE)),
)
SPARK_TESTS = Step("spark tests", (PYTHON, "-m", "pytest", "-q", "tests/spark"))
WHEEL = Step("wheel", (PYTHON, "-m", "tests.builds.wheel_smoke"))
SIMULATION = Step("simulation", (PYTHON, "-m", "tests.simulation", "--seeds", "500", "--processes", "1"))
FAR_LISTS = (
    [INTEGRATION_TESTS],
    [OTHER_TESTS, CLUSTER_TESTS, WHEEL],
    [SPARK_TESTS, SIMULATION, DOCUMENTATION_TESTS],
)
FAR_STEPS = [step for steps in FAR_LISTS for step in steps]


_NUMBER = re.compile(r"\d+")


def run(step: Step, *, is_beside: bool = False) -> bool:
    """Run one step; return whether it succeeded. Beside others its output comes at its end."""
    print(f"\n== {step.title}: {' '.join(step.command)}", flush=True)
    started = time.monotonic()
    # The tools of this interpreter's environment come first, also when it is not activated.
    environment = os.environ | {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    process = subprocess.Popen(
        step.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    kept = []
    shape = ""
    for line in process.stdout:
        # librdkafka logs each attempt to reach a broker that is gone: hundreds of lines, which hide what failed.
        shape, before = _NUMBER.sub("", line), shape
        if line.startswith("%") and shape == before:
            continue
        if is_beside:
            kept.append(line)
        else:
            print(line, end="", flush=True)
    succeeded = process.wait() == 0
    kept.append(f"== {step.title}: {'ok' if succeeded else 'FAILED'} in {time.monotonic() - started:.1f} s\n")
    print("".join(kept), end="", flush=True)
    return succeeded


def failures(steps: list[Step], *, is_beside: bool = False) -> list[str]:
    """Run steps one after the other; return the titles of those that failed."""
    return [step.title for step in steps if not run(step, is_beside=is_beside)]


def failures_of(lists: Sequence[list[Step]]) -> list[str]:
    """Run lists side by side; return the titles of the steps that failed."""
    with ThreadPoolExecutor(len(lists)) as executor:
        return [title for failed in executor.map(partial(failures, is_beside=True), lists) for title in failed]


def main() -> int:
    """Run the steps that the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__.partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--far", action="store_true", help="run the tests that are left out without it")
    which.add_argument("--only", metavar="TITLE", help="run a single step, for example: types")
    arguments = parser.parse_args()
    if arguments.only:
        every = (*NEAR_STEPS, *FAR_STEPS)
        steps = [step for step in every if step.title == arguments.only]
        if not steps:
            parser.error(f"no step {arguments.only!r}; known: {', '.join(step.title for step in every)}")
        failed = failures(steps)
    elif arguments.far:
        failed = failures_of(FAR_LISTS)
    else:
        failed = failures([BUILD]) + failures_of(NEAR_LISTS)
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'all green'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
