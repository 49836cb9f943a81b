"""Runs other projects' own test suites against the embedded broker: `python -m tests.foreign kafka-python`.

    download the source distribution -> unpack -> run its tests with a plugin that starts our broker in place of Kafka
    -> compare the failures with those expected, and say why those fail

Exit status 0 if no other tests failed, and none of the expected ones passed. Needs the network for the first step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Suite:
    """One project's tests.

    Attributes:
        requirement: the source distribution, for pip.
        tests: paths in it.
        plugin: pytest plugin that provides the broker.
        environment: what the tests want to see.
        expected_failures: name of a test -> why it fails.
    """

    requirement: str
    tests: tuple[str, ...]
    plugin: str
    environment: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)


SUITES: Mapping[str, Suite] = {
    "kafka-python": Suite(
        requirement="kafka-python==3.0.12",
        tests=("test/integration",),
        plugin="tests.foreign.kafka_python_plugin",
        environment={"KAFKA_VERSION": "4.3.0"},
        expected_failures={},
    ),
}


def main() -> int:
    """Run one suite and print counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("pytest_options", nargs="*", help="passed on to pytest, -k NAME say (after --)")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    with tempfile.TemporaryDirectory(prefix="foreign-") as directory:
        source = unpack(suite, Path(directory))
        report = Path(directory) / "report.xml"
        run(suite, source, report, options.pytest_options)
        if not report.exists():
            print(f"{suite.requirement}: pytest could not run the tests", file=sys.stderr)
            return 2
        return summarize(suite, report)


def unpack(suite: Suite, directory: Path) -> Path:
    """Download and unpack the source distribution; return its directory."""
    name = suite.requirement.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--no-binary", name, "-d", str(directory), suite.requirement], check=True)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    (source,) = (path for path in directory.iterdir() if path.is_dir())
    for path in {part for test in suite.tests for part in (source / test).parents if source in part.parents}:
        (path / "__init__.py").touch()  # `test` is also a package of the standard library
    return source


def run(suite: Suite, source: Path, report: Path, pytest_options: list[str]) -> None:
    """Run the tests in their own directory; what they print goes to our output."""
    environment = {**os.environ, **suite.environment, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", suite.plugin, f"--junitxml={report}"]
    subprocess.run([*command, *suite.tests, *pytest_options], cwd=source, env=environment, check=False)


def summarize(suite: Suite, report: Path) -> int:
    """Print counts, the expected failures by reason, and what differs from them; return the exit status."""
    counts: Counter[str] = Counter()
    failed, passed = set(), set()
    for case in ElementTree.parse(report).iter("testcase"):
        name = str(case.get("name"))
        if case.find("skipped") is not None:
            counts["skipped"] += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            failed.add(name)
        else:
            counts["passed"] += 1
            passed.add(name)
    print(f"{suite.requirement}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    for reason, number in Counter(suite.expected_failures.get(name, "NOT EXPECTED") for name in failed).items():
        print(f"  {number} failed: {reason}")
    for name in sorted(failed - suite.expected_failures.keys()):
        print(f"  not expected to fail: {name}")
    for name in sorted(passed & suite.expected_failures.keys()):
        print(f"  expected to fail, but passed: {name}")
    is_as_expected = counts["passed"] and failed <= suite.expected_failures.keys()
    return 0 if is_as_expected and not passed & suite.expected_failures.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
