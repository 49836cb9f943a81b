"""A few of the faults of `python -m tests.campaigns.spark_stops`, in a process of its own, as it makes its session."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("kind", ["stages", "queries"])
def test_each_row_is_there_once_after_writes_that_were_stopped(kind: str) -> None:
    command = [sys.executable, "-m", "tests.campaigns.spark_stops", f"--{kind}", "3", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"Tally(fault='{kind}'" in done.stdout
