"""What test files cost is measured, kept, and used to cut lists to one length."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checking import durations

TESTS = """
import os
import time
import pytest

@pytest.fixture(scope="module")
def dear():
    started = time.process_time()
    while time.process_time() < started + 0.1:
        pass

def test_with_a_fixture(dear):
    # What a test starts measures nothing of its own.
    assert "KAFKAPROD_DURATIONS" not in os.environ
    assert "PYTEST_PLUGINS" not in os.environ
"""


def test_a_run_writes_seconds_and_cpu_of_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "DIRECTORY", tmp_path / "kept")
    (tmp_path / "test_dear.py").write_text(TESTS)
    variables = durations.environment("unit tests")
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "test_dear.py"]
    environment = os.environ | {"PYTHONPATH": str(durations.ROOT)} | variables
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    ((file, (seconds, cpu)),) = durations.of_steps(["unit tests", "not run"]).items()
    assert file.endswith("test_dear.py")
    assert seconds > 0
    assert cpu > 0
    durations.environment("unit tests")
    assert durations.of_steps(["unit tests"]) == {}, "what an earlier run took is no answer for this one"


def test_shares_take_as_long_as_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "KEPT", tmp_path / "durations.json")
    durations.KEPT.write_text(json.dumps({"a": [9, 1], "b": [5, 1], "c": [3, 1], "d": [1, 1]}))
    assert durations.shares("abcd", 2) == [["a"], ["b", "c", "d"]]
    assert durations.shares(["a", "unknown", "c"], 2) == [["a"], ["c", "unknown"]]
    assert durations.shares("abcd", 2, together="cd") == [["b", "c", "d"], ["a"]]


def test_dearest_files_come_first() -> None:
    assert durations.dearest({"tests/a.py": [1.0, 0.5], "tests/b.py": [20.0, 4.0]}) == [
        "   20.0 s     4.0 s of CPU  tests/b.py",
        "    1.0 s     0.5 s of CPU  tests/a.py",
    ]
