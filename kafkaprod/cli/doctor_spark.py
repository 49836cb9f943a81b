"""`kafkaprod doctor --spark`: examine the interpreter that Spark's Python workers run, and its packages."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafkaprod.admin.checkup import Finding, Level

PATIENCE_S: Final = 60.0
OLDEST_PYSPARK: Final = (3, 5)
OLDEST_PYARROW: Final = (18,)
_PROBE: Final = """
import importlib.metadata as m, json, pkgutil, sys
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps({
    "python": sys.version_info[:2],
    "packages": {n: version(n) for n in sys.argv[1:]},
    "finds_source": any(found.name == "pyspark_kafkaprod" for found in pkgutil.iter_modules()),
}))
"""
_PACKAGES: Final = ("pyspark", "pyarrow", "kafkaprod", "pandas")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter and its packages.

    Attributes:
        packages: Versions by name; None: not installed.
        finds_source: Pkgutil lists the module by which Spark finds `format("kafkaprod")`. It does not after an editable
            installation that works by an import hook.
    """

    python: tuple[int, int]
    packages: dict[str, str | None]
    finds_source: bool = True


@dataclass(frozen=True, slots=True)
class SparkFacts:
    """The state of this machine.

    Attributes:
        driver: The interpreter that runs this.
        worker_path: The interpreter of the workers; `chosen_by` names the setting.
        worker: Its packages; None: it does not run, for the reason in `refusal`.
        has_java: Whether Java can be started.
    """

    driver: Interpreter
    worker_path: str
    chosen_by: str
    worker: Interpreter | None
    refusal: str = ""
    has_java: bool = True


def look_at_spark() -> SparkFacts:
    """Examine the interpreter that a local session's workers would run."""
    packages = {name: _version(name) for name in _PACKAGES}
    driver = Interpreter((sys.version_info[0], sys.version_info[1]), packages, _finds_source())
    path, chosen_by = os.environ.get("PYSPARK_PYTHON"), "PYSPARK_PYTHON"
    if not path:
        path, chosen_by = "python3", "PATH, because PYSPARK_PYTHON is not set"
    has_java = bool(os.environ.get("JAVA_HOME") or shutil.which("java"))
    try:
        # Away from the working directory, whose packages are on the path of a program but not of every worker.
        command, environment = [path, "-c", _PROBE, *_PACKAGES], os.environ | {"PYTHONSAFEPATH": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        seen: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return SparkFacts(driver, path, chosen_by, None, str(error), has_java)
    worker = Interpreter((seen["python"][0], seen["python"][1]), seen["packages"], seen["finds_source"])
    return SparkFacts(driver, path, chosen_by, worker, "", has_java)


def examine_spark(facts: SparkFacts) -> list[Finding]:
    """Return what will go wrong with a session on this machine. Pure."""
    return [*_session(facts), *_workers(facts)]


def _session(facts: SparkFacts) -> Iterator[Finding]:
    version = facts.driver.packages["pyspark"]
    if version is None:
        yield Finding(Level.PROBLEM, "pyspark", "is not installed", "pip install 'kafkaprod[spark]'")
        return
    number = _number(version)
    if number < OLDEST_PYSPARK:
        yield Finding(Level.PROBLEM, "pyspark", f"{version} is too old: 3.5 is needed", "update it")
    elif number < (4,):
        yield Finding(Level.OK, "pyspark", f"{version}: write() and foreach_batch(), but no format('kafkaprod')")
    elif number < (4, 1):
        yield Finding(Level.OK, "pyspark", f"{version}: format('kafkaprod') for batches, foreach_batch() for streams")
    else:
        yield Finding(Level.OK, "pyspark", f"{version}: format('kafkaprod') for batches and streams")
    if facts.driver.packages["pandas"] is None:
        yield Finding(Level.PROBLEM, "pandas", "PySpark needs it for write()", "pip install 'kafkaprod[spark]'")
    if not facts.has_java:
        yield Finding(Level.PROBLEM, "java", "is neither on PATH nor at JAVA_HOME", "install Java 17")


def _workers(facts: SparkFacts) -> Iterator[Finding]:
    subject, worker = "workers", facts.worker
    if worker is None:
        text = f"{facts.worker_path} (from {facts.chosen_by}) does not run: {facts.refusal}"
        yield Finding(Level.PROBLEM, subject, text, "set PYSPARK_PYTHON to the interpreter of this environment")
        return
    text = f"{facts.worker_path} (from {facts.chosen_by}) is Python {worker.python[0]}.{worker.python[1]}"
    if worker.python != facts.driver.python:
        text += f", the driver's is {facts.driver.python[0]}.{facts.driver.python[1]}: Spark refuses that"
        yield Finding(Level.PROBLEM, subject, text, f"set PYSPARK_PYTHON={sys.executable}")
        return
    yield Finding(Level.OK, subject, text)
    arrow, ours = worker.packages["pyarrow"], worker.packages["kafkaprod"]
    if arrow is None:
        yield Finding(Level.PROBLEM, "pyarrow", "workers do not have it", "pip install pyarrow there")
    elif _number(arrow) < OLDEST_PYARROW:
        yield Finding(Level.WARNING, "pyarrow", f"workers have {arrow}, tested is 18 and later", "update it")
    if ours is None:
        remedy = "install it there, or call kafkaprod.spark.ship(spark)"
        yield Finding(Level.PROBLEM, "kafkaprod", "workers do not have it", remedy)
    elif ours != facts.driver.packages["kafkaprod"]:
        text = f"workers have {ours}, the driver {facts.driver.packages['kafkaprod']}"
        yield Finding(Level.WARNING, "kafkaprod", text, "install the same version on both sides")
    if ours is not None and not worker.finds_source and _number(facts.driver.packages["pyspark"] or "") >= (4,):
        text = "is installed, but Spark cannot find format('kafkaprod'): pkgutil does not list pyspark_kafkaprod"
        remedy = "call kafkaprod.spark.register(spark), or install it without -e"
        yield Finding(Level.WARNING, "kafkaprod", text, remedy)


def _number(version: str) -> tuple[int, ...]:
    """Return the major and minor version; 0 for a part that is not a number."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])


def _finds_source() -> bool:
    return any(module.name == "pyspark_kafkaprod" for module in pkgutil.iter_modules())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
