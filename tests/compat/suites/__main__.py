"""Runs other clients' own producer tests against kafkaprod.compat: `python -m tests.compat.suites kafka-python`.

The tests of kafka-python come with its source distribution, which pip downloads. Those of confluent-kafka and aiokafka
are only in their repositories: clone them and give --source. A plugin puts our producer in the place of theirs, and the
embedded broker in the place of Apache Kafka; nothing else of theirs is changed. Prints how many passed, failed and do
not apply, and why; exit status 0 if that is as expected.
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
        tests: Files with tests of its producer.
        requirement: The source distribution that has them; empty: only the repository does.
        plugin: Pytest plugin that puts our producer in place; empty: `conftest` does.
        conftest: Replaces the project's own tests/conftest.py.
        reasons: Name of a test -> "fails: ..." or "does not apply: ...", with the reason.
        environment: What the tests want to see.
    """

    tests: tuple[str, ...]
    requirement: str = ""
    plugin: str = ""
    conftest: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


SUITES: Mapping[str, Suite] = {
    "kafka-python": Suite(
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
        tests=tuple(
            f"tests/test_{name}.py"
            for name in ("Producer", "kafka_error", "error", "partitioners", "misc", "message", "oauth_cb")
        ),
        plugin="confluent_kafka_plugin",
        reasons=CONFLUENT_KAFKA,
    ),
    "aiokafka": Suite(
        tests=("tests/test_producer.py", "tests/test_transactional_producer.py", "tests/test_partitioner.py"),
        conftest="aiokafka_producer_conftest.py",
        reasons=AIOKAFKA,
    ),
}


def main() -> int:
    """Run one suite and print counts."""
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
        report = directory / "report.xml"
        run(suite, source, report)
        if not report.exists():
            print("pytest could not run the tests", file=sys.stderr)
            return 2
        return summarize(options.suite, suite, report)


def run(suite: Suite, source: Path, report: Path) -> None:
    """Run the tests in their own directory, whose package `tests` comes before ours."""
    paths = os.pathsep.join(map(str, (source, PLUGINS, FOREIGN_PLUGINS, ROOT)))
    environment = {**os.environ, **suite.environment, "PYTHONPATH": paths, "KAFKAPROD_ROOT": str(ROOT)}
    plugin = ["-p", suite.plugin] if suite.plugin else []
    command = [sys.executable, "-P", "-m", "pytest", "-q", "--tb=no", "--timeout=60", f"--junitxml={report}", *plugin]
    subprocess.run([*command, *suite.tests], cwd=source, env=environment, check=False, stdout=subprocess.DEVNULL)


def summarize(name: str, suite: Suite, report: Path) -> int:
    """Print counts and reasons, and what differs from them; return the exit status."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    surprises = []
    for case in ElementTree.parse(report).iter("testcase"):
        test = str(case.get("name")).partition("[")[0]
        reason = suite.reasons.get(test)
        if case.find("skipped") is not None:
            counts["skipped by themselves"] += 1
        elif case.find("failure") is None and case.find("error") is None:
            counts["passed"] += 1
        else:
            kind = "failed" if reason is None or reason.startswith("fails") else "not applicable"
            counts[kind] += 1
            reasons[reason or f"NOT EXPECTED: {case.get('name')}"] += 1
            if reason is None:
                surprises.append(test)
    print(f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    for reason, count in sorted(reasons.items()):
        print(f"  {count}: {reason}")
    return 1 if surprises or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
