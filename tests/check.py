"""The one check command: `python -m tests.check` runs everything that must be green before a change lands.

build, then in two lists side by side: format, lint, cython-lint, types, stub test, import contracts, docs and the tests
of architecture, properties and conformance; and the unit tests. `--changed` does the same with less: the near tests
that what differs from `origin/main` can reach (`tests.checking.picks`), and the static steps that look at it.
`--far` runs every other test instead, in lists that are as long as each other: processes, real Kafka, Spark, the wheel
and the simulation. Each step is printed as it is run, so that it can be run by hand; all run even if one fails, and the
exit status is 1 if any did. The last lines say which test files took longest, and how large the rooms are. Speed is
measured by `python -m benchmarks.guard`, on a quiet machine.

The extra `dev` is enough for the first two, `dev-all` for `--far`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.checking import durations, picks, weight
from tests.checking.uses import Uses

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
PYTEST = (PYTHON, "-m", "pytest", "-q")
UNIT_TESTS = Step("unit tests", (*PYTEST, "tests/unit"))
RULES = Step("rules and properties", (*PYTEST, *NEAR_TESTS[1:]))
# What runs side by side after the build, the steps of each list one after the other: as long as each other.
NEAR_LISTS = ([*STATIC_STEPS, RULES], [UNIT_TESTS])
NEAR_STEPS = [BUILD, *(step for steps in NEAR_LISTS for step in steps)]

_PAGES = ("docs/", "README.md", "CHANGELOG.md", "kafkaprod/", "tests/pages/")
# What a static step looks at, where it is less than all: endings and beginnings of paths.
LOOKED_AT = {
    "cython lint": (".pyx", ".pxd", "pyproject.toml"),
    "workflow": (".yml",),
    "types": ("kafkaprod/", "pyproject.toml"),
    "types on macOS": ("kafkaprod/", "pyproject.toml"),
    "stubs": (".pyx", ".pyi", "kafkaprod/_core/", "pyproject.toml", "tests/stubtest_allowlist.txt"),
    "imports": ("kafkaprod/", "pyproject.toml"),
    "docs": _PAGES,
    "search of the docs": _PAGES,
}

CLUSTER = "tests/integration/cluster"
DOCUMENTATION = "tests/integration/test_documentation.py"
_INTEGRATION = [f"tests/integration/{path.name}" for path in sorted((ROOT / "tests/integration").glob("test_*.py"))]
_INTEGRATION.remove(DOCUMENTATION)
# They wait two thirds of their time, so two processes share the processors; Apache Kafka is started in one of them.
_WITH_KAFKA = [path for path in _INTEGRATION if "mark.external" in (ROOT / path).read_text(encoding="utf-8")]
INTEGRATION_TESTS, MORE_INTEGRATION_TESTS = (
    Step(title, (*PYTEST, *files))
    for title, files in zip(
        ("integration tests", "more integration tests"),
        durations.shares(_INTEGRATION, 2, together=_WITH_KAFKA),
        strict=True,
    )
)
CLUSTER_TESTS = Step("cluster tests", (*PYTEST, CLUSTER))
DOCUMENTATION_TESTS = Step("documentation", (*PYTEST, DOCUMENTATION))
ELSEWHERE = (*NEAR_TESTS, "tests/integration", "tests/spark")
OTHER_TESTS = Step(
    "other tests",
    (*PYTEST, "tests", *(f"--ignore={path}" for path in ELSEWHERE)),
)
SPARK_TESTS = Step("spark tests", (*PYTEST, "tests/spark"))
WHEEL = Step("wheel", (PYTHON, "-m", "tests.builds.wheel_smoke"))
SIMULATION = Step("simulation", (PYTHON, "-m", "tests.simulation", "--seeds", "100", "--processes", "1"))
FAR_LISTS = (
    [INTEGRATION_TESTS, CLUSTER_TESTS],
    [MORE_INTEGRATION_TESTS, DOCUMENTATION_TESTS],
    [OTHER_TESTS],
    [SPARK_TESTS, SIMULATION, WHEEL],
)
FAR_STEPS = [step for steps in FAR_LISTS for step in steps]


_NUMBER = re.compile(r"\d+")


def run(step: Step, *, is_beside: bool = False) -> bool:
    """Run one step; return whether it succeeded. Beside others its output comes at its end."""
    print(f"\n== {step.title}: {shlex.join(step.command)}", flush=True)
    started = time.monotonic()
    measuring = durations.environment(step.title) if "pytest" in step.command else {}
    # The tools of this interpreter's environment come first, also when it is not activated.
    environment = os.environ | {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    process = subprocess.Popen(
        step.command, cwd=ROOT, env=environment | measuring, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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


def changed_lists(changed: Sequence[str]) -> tuple[list[Step], list[Step]]:
    """Two lists of the steps that a change of these files can make fail, with the near tests that it can reach."""
    uses = Uses(ROOT, picks.tree_files(changed))
    tests = picks.picked(uses, changed)
    print(
        f"{len(changed)} changed files reach {len(tests)} of {sum(map(picks.is_near_test, uses.files))} near test files"
    )
    static = [step for step in STATIC_STEPS if _concerns(LOOKED_AT.get(step.title, ("",)), changed)]
    unit = [test for test in tests if test.startswith(f"{NEAR_TESTS[0]}/")]
    rules = [test for test in tests if test not in unit]
    chosen = [
        [Step(step.title, (*PYTEST, *files))] if files else [] for step, files in ((RULES, rules), (UNIT_TESTS, unit))
    ]
    return [*static, *chosen[0]], chosen[1]


def _concerns(parts: tuple[str, ...], changed: Sequence[str]) -> bool:
    return any(path.startswith(parts) or path.endswith(parts) for path in changed)


def failures(steps: list[Step], *, is_beside: bool = False) -> list[str]:
    """Run steps one after the other; return the titles of those that failed."""
    return [step.title for step in steps if not run(step, is_beside=is_beside)]


def failures_of(lists: Sequence[list[Step]]) -> list[str]:
    """Run lists side by side; return the titles of the steps that failed."""
    with ThreadPoolExecutor(len(lists)) as executor:
        return [title for failed in executor.map(partial(failures, is_beside=True), lists) for title in failed]


def print_costs(titles: Sequence[str]) -> None:
    """Print the test files of these steps that took longest, and how large the rooms are beside their budgets."""
    if dearest := durations.dearest(durations.of_steps(titles)):
        print("\nthe dearest test files:", *dearest, sep="\n")
    print("\nlines of code by room:", *weight.lines(), sep="\n")


def main() -> int:
    """Run the steps that the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__.partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--far", action="store_true", help="run the tests that are left out without it")
    which.add_argument("--changed", action="store_true", help="run what a change since origin/main can make fail")
    which.add_argument("--only", metavar="TITLE", help="run a single step, for example: types")
    arguments = parser.parse_args()
    if arguments.only:
        every = (*NEAR_STEPS, *FAR_STEPS)
        lists: Sequence[list[Step]] = ([step for step in every if step.title == arguments.only],)
        if not lists[0]:
            parser.error(f"no step {arguments.only!r}; known: {', '.join(step.title for step in every)}")
        failed = failures(lists[0])
    elif arguments.far:
        lists = FAR_LISTS
        failed = failures_of(lists)
    else:
        lists = changed_lists(picks.changed_files()) if arguments.changed else NEAR_LISTS
        failed = failures([BUILD]) + failures_of(lists)
    print_costs([step.title for steps in lists for step in steps])
    print(f"\n{'FAILED: ' + ', '.join(failed) if failed else 'all green'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
