"""Runs other projects' own test suites against the embedded broker: `python -m tests.foreign kafka-python`.

    download what the package registry has -> unpack -> run its tests, with our broker in place of Kafka
    -> compare the failures with those expected, and say why those fail

Python: the source distribution, and a plugin that starts the broker. Go (`go_modules`): the module, and a broker whose
address the tests know.

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.foreign import go_modules
from tests.foreign.results import Results, summarize

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Suite:
    """One project's tests.

    Attributes:
        requirement: the source distribution, for pip.
        tests: paths in it.
        plugin: pytest plugin that provides the broker.
        environment: what the tests want to see.
        expected_failures: class and name of a test -> why it fails.
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
    parser.add_argument("suite", choices=sorted([*SUITES, *go_modules.SUITES]))
    parser.add_argument(
        "options", nargs="*", help="passed on to pytest or go test, -k NAME or -run=NAME say (after --)"
    )
    options = parser.parse_args()
    if options.suite in go_modules.SUITES:
        go_suite = go_modules.SUITES[options.suite]
        results = go_modules.run(go_suite, options.options)
        return summarize(go_suite.requirement, results, go_suite.expected_failures)
    suite = SUITES[options.suite]
    with tempfile.TemporaryDirectory(prefix="foreign-") as directory:
        source = unpack(suite, Path(directory))
        report = Path(directory) / "report.xml"
        run(suite, source, report, options.options)
        if not report.exists():
            print(f"{suite.requirement}: pytest could not run the tests", file=sys.stderr)
            return 2
        return summarize(suite.requirement, read_report(report), suite.expected_failures)


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


def read_report(report: Path) -> Results:
    """Collect the outcomes from pytest's report."""
    results = Results()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("skipped") is not None:
            results.skipped.add(name)
        elif case.find("failure") is not None or case.find("error") is not None:
            results.failed.add(name)
        else:
            results.passed.add(name)
    return results


if __name__ == "__main__":
    sys.exit(main())
