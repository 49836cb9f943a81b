"""No object of a compiled class crashes the interpreter when its constructor never ran, or runs twice."""

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = Path(__file__).with_name("uninitialised_probe.py")


@pytest.mark.parametrize("kind", ["bare", "subclass", "twice"])
def test_every_member_of_every_compiled_class_refuses_or_answers(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", PROBE, kind], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, "\n".join(done.stdout.splitlines()[-3:]) + done.stderr[-2000:]
    assert int(done.stdout.splitlines()[-1].split()[0]) > 100  # members called
