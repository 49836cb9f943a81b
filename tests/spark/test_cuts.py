"""`python -m tests.campaigns.spark_cuts`: its sessions, and two runs with two attempts at a task at once."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaigns import spark_cuts
from tests.campaigns.spark_cuts import Campaign


def test_session_that_lost_a_shuffle_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[int, str]] = []  # the number of the session, and the fault
    sessions: list[str] = []

    @contextlib.contextmanager
    def session(master: str, has_own_source: bool) -> Iterator[None]:
        sessions.append(master)
        yield

    def run(_: Campaign, spark: None, fault: str, *arguments: Any) -> None:
        runs.append((len(sessions), fault))

    monkeypatch.setattr(spark_cuts, "_session", session)
    monkeypatch.setattr(Campaign, "_run", run)
    Campaign("none:1", random.Random(1), has_own_source=False).on_one_host(25)
    assert len(runs) == 25
    assert [number for number, fault in runs if fault.startswith("shuffle")] == [1, 2]
    assert runs[-1] == (3, "Python raises at batch 0")
    assert len(sessions) == 3


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_each_row_is_there_once_after_two_attempts_at_a_task_at_once() -> None:
    command = [sys.executable, "-m", "tests.campaigns.spark_cuts", "--speculation", "2", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.count(": right\n") == 2
