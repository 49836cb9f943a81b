"""A short run of the fuzzer of the Python interface; `python -m tests.fuzz.python_api` runs it for longer."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_objects_raise_documented_errors_only(seed: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz.python_api", "--calls", "3000", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
