"""How long a process is waited for that has no processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkaprod.broker.embedding import patience
from kafkaprod.broker.embedding.child_process import ChildProcess, EmbeddedBrokerError
from kafkaprod.broker.embedding.patience import Patience, starved_s

BUSY = "while True: pass"
LATE = "import sys, time; sys.stdin.readline(); time.sleep(0.2); print('{\"number\": 1}', flush=True); sys.stdin.read()"
SetTimes = Callable[[float, float], None]


@pytest.fixture
def set_times(monkeypatch: pytest.MonkeyPatch) -> SetTimes:
    """Sets the clock, and how long the process has waited for a processor until then."""

    def set_both(now_s: float, waited_s: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: now_s)
        monkeypatch.setattr(patience, "starved_s", lambda pid: waited_s)

    return set_both


def test_time_without_a_processor_does_not_count(set_times: SetTimes) -> None:
    set_times(1000, 7)
    waiting = Patience(120, os.getpid())
    for now_s, waited_s, left_s in ((1000, 7, 120), (1119, 7, 1), (1120, 7, 0), (1200, 107, 20), (1257, 255, 111)):
        set_times(now_s, waited_s)
        assert waiting.left_s() == left_s


def test_a_process_that_never_gets_a_processor_is_given_up(set_times: SetTimes) -> None:
    set_times(0, 0)
    waiting = Patience(120, os.getpid())
    set_times(1199, 1199)
    assert waiting.left_s() == 1
    set_times(1201, 1201)
    assert waiting.left_s() == 0


def test_threads_that_wait_side_by_side_do_not_count_twice(set_times: SetTimes) -> None:
    set_times(0, 0)
    waiting = Patience(120, os.getpid())
    set_times(10, 50)
    assert waiting.left_s() == 120


def test_all_time_counts_where_the_process_is_not_known(set_times: SetTimes) -> None:
    set_times(0, 0)
    waiting = Patience(120, None)
    set_times(100, 90)
    assert waiting.left_s() == 20
    assert starved_s(1 << 30) == 0


def test_an_answer_of_a_starved_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcess([sys.executable, "-c", LATE]) as process:
        monkeypatch.setattr(patience, "starved_s", lambda pid: time.monotonic())
        monkeypatch.setattr(patience, "_MOST_TIMES", 30_000)
        assert process.exchange({}, 0.001, "it") == {}
        assert process.stdin is not None
        process.stdin.close()


def test_the_end_of_a_starved_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "starved_s", lambda pid: time.monotonic())
    monkeypatch.setattr(patience, "_MOST_TIMES", 30_000)
    with ChildProcess([sys.executable, "-c", "import time; time.sleep(0.2)"]) as process:
        process.wait_patiently(0.001)
        assert process.returncode == 0


def test_a_process_that_waits_for_nothing_is_not_waited_for_longer() -> None:
    with ChildProcess([sys.executable, "-c", "import sys; sys.stdin.read()"]) as process:
        with pytest.raises(
            EmbeddedBrokerError, match=r"within 0\.01 s, besides \d+\.\d s for which it had no processor"
        ):
            process.exchange({}, 0.01, "it")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait_patiently(0.01)
        process.kill()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say how long processes wait")
def test_a_process_beside_others_on_one_processor_waits_for_it() -> None:
    def pin() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    busy = [subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=pin) for _ in range(2)]
    try:
        deadline_s = time.monotonic() + 60
        while min(starved_s(process.pid) for process in busy) < 0.05:
            assert time.monotonic() < deadline_s
            assert all(process.poll() is None for process in busy)
    finally:
        for process in busy:
            process.kill()
            process.wait()
