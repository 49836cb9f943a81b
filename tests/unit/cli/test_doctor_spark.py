"""What `kafkaprod doctor --spark` says of interpreters and versions."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod.admin.checkup import Level
from kafkaprod.cli.doctor_spark import Interpreter, SparkFacts, examine_spark, look_at_spark

PACKAGES: dict[str, str | None] = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "kafkaprod": "0.1", "pandas": "2.3"}
GOOD = Interpreter((3, 11), PACKAGES)
FACTS = SparkFacts(GOOD, "/opt/python", "PYSPARK_PYTHON", GOOD)


def having(interpreter: Interpreter, **packages: str | None) -> Interpreter:
    return replace(interpreter, packages=interpreter.packages | packages)


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (replace(FACTS, driver=having(GOOD, pyspark=None)), Level.PROBLEM, "is not installed"),
        (replace(FACTS, driver=having(GOOD, pyspark="3.4.1")), Level.PROBLEM, "3.5 is needed"),
        (replace(FACTS, driver=having(GOOD, pyspark="3.5.9")), Level.OK, "no format('kafkaprod')"),
        (replace(FACTS, driver=having(GOOD, pyspark="4.0.5")), Level.OK, "foreach_batch() for streams"),
        (replace(FACTS, driver=having(GOOD, pandas=None)), Level.PROBLEM, "PySpark needs it for write()"),
        (replace(FACTS, has_java=False), Level.PROBLEM, "neither on PATH"),
        (replace(FACTS, worker=None, refusal="no such file"), Level.PROBLEM, "does not run: no such file"),
        (replace(FACTS, worker=replace(GOOD, python=(3, 9))), Level.PROBLEM, "3.9, the driver's is 3.11"),
        (replace(FACTS, worker=having(GOOD, pyarrow=None)), Level.PROBLEM, "workers do not have it"),
        (replace(FACTS, worker=having(GOOD, pyarrow="12.0.1")), Level.WARNING, "workers have 12.0.1"),
        (replace(FACTS, worker=having(GOOD, kafkaprod=None)), Level.PROBLEM, "workers do not have it"),
        (replace(FACTS, worker=having(GOOD, kafkaprod="0.0")), Level.WARNING, "workers have 0.0, the driver 0.1"),
        (replace(FACTS, worker=replace(GOOD, finds_source=False)), Level.WARNING, "pkgutil does not list"),
    ],
)
def test_what_will_go_wrong_is_named(facts: SparkFacts, level: Level, words: str) -> None:
    assert [finding.level for finding in examine_spark(facts) if words in finding.text] == [level]


def test_a_good_installation_has_no_problem() -> None:
    assert {finding.level for finding in examine_spark(FACTS)} == {Level.OK}


def test_the_interpreter_of_workers_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    facts = look_at_spark()
    assert facts.worker == facts.driver


def test_an_interpreter_that_is_not_there_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    facts = look_at_spark()
    assert facts.worker is None
    assert "/no/such/python" in facts.refusal


def test_workers_are_asked_whether_spark_will_find_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    worker = look_at_spark().worker
    assert worker is not None
    assert not worker.finds_source
