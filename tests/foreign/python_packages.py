"""Tests of projects in Python: pip or a clone brings the tests, pytest runs them with our broker in place of Kafka.

pip download, or copy --source -> leave the network -> pytest with a plugin that starts the broker
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.foreign import network, reasons
from tests.foreign.results import Results

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = Path(__file__).resolve().parent / "plugins"


@dataclass(frozen=True)
class PythonSuite:
    """One project's tests.

    Attributes:
        requirement: the distribution; pip downloads its source if `is_in_repository` is off.
        tests: paths in it.
        plugin: pytest plugin that provides the broker; empty: `conftest` does.
        conftest: file of `plugins` that replaces the project's own tests/conftest.py.
        is_in_repository: the source distribution has no tests, a clone of the repository (--source) does.
        packages: what the tests import besides what is here, for pip; it comes before what is installed.
        options: for pytest.
        environment: what the tests want to see.
        expected_failures: class and name of a test -> why it fails.
    """

    requirement: str
    tests: tuple[str, ...]
    plugin: str = ""
    conftest: str = ""
    is_in_repository: bool = False
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)


SUITES: Mapping[str, PythonSuite] = {
    "kafka-python": PythonSuite(
        requirement="kafka-python==3.0.12",
        tests=("test/integration",),
        plugin="kafka_python_plugin",
        environment={"KAFKA_VERSION": "4.3.0"},
    ),
    "confluent-kafka": PythonSuite(
        requirement="confluent-kafka==2.15.0",
        tests=tuple(f"tests/integration/{part}" for part in ("admin", "consumer", "producer", "serialization")),
        plugin="confluent_kafka_plugin",
        is_in_repository=True,
        packages=("confluent-kafka[schemaregistry,avro]==2.15.0",),
        expected_failures=reasons.CONFLUENT_KAFKA,
    ),
    "aiokafka": PythonSuite(
        requirement="aiokafka==0.14.0",
        tests=("tests",),
        conftest="aiokafka_conftest.py",
        is_in_repository=True,
        packages=("--no-deps", "pytest-mock==3.15.1"),
        options=("-o", "asyncio_mode=auto"),
        expected_failures=reasons.AIOKAFKA,
    ),
}


def run(suite: PythonSuite, clone: Path | None, pytest_options: list[str]) -> Results:
    """Bring the tests, run them, and return what came of them; what they print goes to our output.

    Raises:
        RuntimeError: pytest could not run them.
    """
    with tempfile.TemporaryDirectory(prefix="foreign-") as name:
        directory = Path(name)
        source = unpack(suite, directory) if clone is None else _copy(suite, clone, directory)
        report = directory / "report.xml"
        packages = directory / "packages"
        if suite.packages:
            install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages)]
            subprocess.run([*install, *suite.packages], check=True)
        network.leave()
        environment = {
            **os.environ,
            **suite.environment,
            "PYTHONPATH": os.pathsep.join(map(str, (source, packages, PLUGINS, ROOT))),
            "KAFKAPROD_ROOT": str(ROOT),
        }
        plugin = ["-p", suite.plugin] if suite.plugin else []
        command = [sys.executable, "-P", "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}", *plugin]
        subprocess.run(
            [*command, *suite.options, *suite.tests, *pytest_options], cwd=source, env=environment, check=False
        )
        if not report.exists():
            raise RuntimeError(f"{suite.requirement}: pytest could not run the tests")
        return _read(report)


def unpack(suite: PythonSuite, directory: Path) -> Path:
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


def _copy(suite: PythonSuite, clone: Path, directory: Path) -> Path:
    """Copy the tests out of a clone, without the package beside them, which would come before the installed one."""
    source = directory / "source"
    shutil.copytree(clone / "tests", source / "tests")
    if suite.conftest:
        shutil.copy(PLUGINS / suite.conftest, source / "tests" / "conftest.py")
    return source


def _read(report: Path) -> Results:
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
