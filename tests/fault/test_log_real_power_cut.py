"""The power cuts of `tests.campaigns.power_cuts`, where this machine mounts a loop device: by root, in a namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_acknowledged_records_survive_real_power_cuts(tmp_path: Path) -> None:
    cycles = os.environ.get("KAFKAPROD_REAL_POWER_CUTS", "1000")
    command = ["unshare", "--mount", sys.executable, "-m", "tests.campaigns.power_cuts", str(tmp_path), cycles]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stdout
