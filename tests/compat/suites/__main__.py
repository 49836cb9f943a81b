"""Runs other clients' own producer tests with kafkaprod installed in their place: `python -m tests.compat.suites NAME`.

The tests of kafka-python come with its source distribution, which pip downloads. Those of confluent-kafka and aiokafka
are only in their repositories: clone them and give --source. A plugin puts the embedded broker in the place of Apache
Kafka, and the tests run twice: with the client as it is, and after `kafkaprod.compat.install()`. Nothing of theirs is
changed otherwise. Prints how many passed, failed and do not apply each time, and why; exit status 0 if that is as
expected.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.suites.reasons import AIOKAFKA, CONFLUENT_KAFKA, KAFKA_PYTHON
from tests.foreign.python_packages import PLUGINS as FOREIGN_PLUGINS
from tests.foreign.python_packages import PythonSuite as Download
from tests.foreign.python_packages import unpack

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Suite:
    """One project's producer tests.

    Attributes:
        client: What `kafkaprod.compat.install` calls it.
        tests: Files with tests of its producer.
        requirement: The source distribution that has them; empty: only the repository does.
        plugin: Pytest plugin that puts the broker in place, and our producer; empty: `conftest` does.
        conftest: Replaces the project's own tests/conftest.py.
        reasons: Name of a test -> "fails: ..." or "does not apply: ...", with the reason.
        environment: What the tests want to see.
        left_out: Tests that end pytest itself, whichever client runs.
    """

    client: str
    tests: tuple[str, ...]
    requirement: str = ""
    plugin: str = ""
    conftest: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass
class Outcomes:
    """Names of tests by what became of them, as often as they ran."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)


SUITES: Mapping[str, Suite] = {
    "kafka-python": Suite(
        client="kafka_python",
        tests=(
            "test/integration/test_producer_integration.py",
            "test/integration/test_sasl_integration.py",
            "test/integration/test_consumer_integration.py",
            "test/test_future.py",
            "test/test_serializer.py",
            "test/test_package.py",
        ),
        requirement="kafka-python==3.0.12",
        plugin="tests.compat.suites.kafka_python_plugin",
        reasons=KAFKA_PYTHON,
        environment={"KAFKA_VERSION": "4.3.0"},
    ),
    "confluent-kafka": Suite(
        client="confluent_kafka",
        tests=(
            *(
                f"tests/test_{name}.py"
                for name in ("Producer", "kafka_error", "error", "partitioners", "misc", "message", "oauth_cb")
            ),
            "tests/integration/producer",
            "tests/integration/serialization",
        ),
        plugin="confluent_kafka_suite_plugin",
        reasons=CONFLUENT_KAFKA,
        # Raises a KafkaError, which 2.16 lets pass every `except` of pytest's.
        left_out=("tests/test_kafka_error.py::test_kafkaError_unknown_error",),
    ),
    "aiokafka": Suite(
        client="aiokafka",
        tests=("tests/test_producer.py", "tests/test_transactional_producer.py", "tests/test_partitioner.py"),
        conftest="aiokafka_producer_conftest.py",
        reasons=AIOKAFKA,
    ),
}


def main() -> int:
    """Run one suite twice and print counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.suites", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--source", type=Path, help="a clone of the project's repository")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    with tempfile.TemporaryDirectory(prefix="suite-") as name:
        directory = Path(name)
        if suite.requirement:
            source = unpack(Download(suite.requirement, suite.tests, suite.plugin), directory)
        elif options.source is None:
            parser.error(f"the tests of {options.suite} are only in its repository: give --source")
        else:
            source = directory / "source"
            shutil.copytree(options.source / "tests", source / "tests")
        if suite.conftest:
            shutil.copy(PLUGINS / suite.conftest, source / "tests" / "conftest.py")
        before = run(suite, source, directory / "before.xml", installed="")
        after = run(suite, source, directory / "after.xml", installed=suite.client)
    if before is None or after is None:
        print("pytest could not run the tests", file=sys.stderr)
        return 2
    print(f"{options.suite} as it is: {counts(before, {})}")
    for name in sorted(before.failed):
        print(f"  failed: {name}")
    return summarize(options.suite, suite, before, after)


def run(suite: Suite, source: Path, report: Path, *, installed: str) -> Outcomes | None:
    """Run the tests in their own directory, whose package `tests` comes before ours; None: pytest could not.

    Args:
        suite, source: The tests, and where they are.
        report: The file that pytest writes.
        installed: The client in whose place our producer is; empty: none.
    """
    paths = os.pathsep.join(map(str, (source, PLUGINS, FOREIGN_PLUGINS, ROOT)))
    environment = {
        **os.environ,
        **suite.environment,
        "PYTHONPATH": paths,
        "KAFKAPROD_ROOT": str(ROOT),
        "KAFKAPROD_INSTALL": installed,
    }
    plugin = ["-p", suite.plugin] if suite.plugin else []
    command = [sys.executable, "-P", "-m", "pytest", "-q", "--tb=no", "--timeout=60", f"--junitxml={report}", *plugin]
    left_out = [f"--deselect={test}" for test in suite.left_out]
    subprocess.run(
        [*command, *left_out, *suite.tests], cwd=source, env=environment, check=False, stdout=subprocess.DEVNULL
    )
    if not report.exists():
        return None
    outcomes = Outcomes()
    for case in ElementTree.parse(report).iter("testcase"):
        test = str(case.get("name")).partition("[")[0]
        if case.find("skipped") is not None:
            outcomes.skipped[test] += 1
        elif case.find("failure") is None and case.find("error") is None:
            outcomes.passed[test] += 1
        else:
            outcomes.failed[test] += 1
    return outcomes


def counts(outcomes: Outcomes, reasons: Mapping[str, str]) -> str:
    """Return the counts in words."""
    inapplicable = sum(
        count for test, count in outcomes.failed.items() if not reasons.get(test, "fails").startswith("fails")
    )
    return (
        f"{outcomes.passed.total()} passed, {outcomes.failed.total() - inapplicable} failed, "
        f"{inapplicable} not applicable, {outcomes.skipped.total()} skipped by themselves"
    )


def summarize(name: str, suite: Suite, before: Outcomes, after: Outcomes) -> int:
    """Print counts and reasons, and what differs from them; return the exit status."""
    print(f"{name} with kafkaprod in place: {counts(after, suite.reasons)}")
    reasons: Counter[str] = Counter()
    surprises = after.failed.keys() - suite.reasons.keys() - before.failed.keys()
    for test, count in after.failed.items():
        reason = suite.reasons.get(test, f"NOT EXPECTED: {test}")
        reasons["as without kafkaprod" if test in before.failed and test not in suite.reasons else reason] += count
    for reason, count in sorted(reasons.items()):
        print(f"  {count}: {reason}")
    for test in sorted((suite.reasons.keys() & after.passed.keys()) - after.failed.keys()):
        print(f"  expected not to pass, and passed: {test}")
    return 1 if surprises or not after.passed else 0


if __name__ == "__main__":
    sys.exit(main())
