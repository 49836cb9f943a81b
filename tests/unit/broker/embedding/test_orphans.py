"""Temporary directories: gone with the program that made them, however it ends, and its processes with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import runs

_BROKER = """
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
made = EmbeddedBroker(topics={"orders": 3}).start()
pids, directory = [made.pid], made.data_dir
"""
_CLUSTER = """
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
made = EmbeddedCluster(brokers=2, topics={"orders": 3}).start()
pids, directory = [made._host.pid, *made.ask({"command": "processes"})["pids"].values()], made.data_dir
"""
_WAIT = """
import sys, time
print(directory, *pids, flush=True)
time.sleep(600)
"""
_FORK = """
import os, time
if os.fork() == 0:  # has copies of all pipes, and outlives its parent
    time.sleep(60)
    os._exit(0)
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("what", [_BROKER, _CLUSTER], ids=["broker", "cluster"])
@pytest.mark.parametrize(
    ("number", "to_group"),
    [(signal.SIGTERM, False), (signal.SIGKILL, False), (signal.SIGTERM, True), (signal.SIGHUP, True)],
    ids=["SIGTERM", "SIGKILL", "SIGTERM to all", "SIGHUP to all"],
)
def test_nothing_outlives_a_program_that_a_signal_ends(what: str, number: signal.Signals, to_group: bool) -> None:
    # Whoever runs the tests may ignore SIGHUP, as nohup does, and programs inherit that.
    usual = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    command = [sys.executable, "-c", usual + what + _WAIT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as program:
        assert program.stdout is not None
        try:
            data_dir, *pids = program.stdout.readline().decode().split()
            temporary = os.path.dirname(data_dir)
            assert os.path.isdir(temporary)
            if to_group:
                os.killpg(program.pid, number)
            else:
                program.send_signal(number)
            assert program.wait(30) == -number
        finally:
            program.kill()
    wait_until(lambda: not any(runs(int(pid)) for pid in pids))
    assert not os.path.exists(temporary)


@pytest.mark.parametrize("what", [_BROKER, _CLUSTER], ids=["broker", "cluster"])
def test_a_forked_child_keeps_nothing_alive(what: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", what + _FORK + _WAIT], stdout=subprocess.PIPE, start_new_session=True
    )
    assert program.stdout is not None
    try:
        data_dir, *pids = program.stdout.readline().decode().split()
        program.kill()
        assert program.wait(30) == -signal.SIGKILL
        wait_until(lambda: not any(runs(int(pid)) for pid in pids))
        assert not os.path.exists(os.path.dirname(data_dir))
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.stdout.close()


@pytest.mark.parametrize("what", [_BROKER, _CLUSTER], ids=["broker", "cluster"])
def test_what_is_never_started_leaves_nothing(what: str) -> None:
    made_only = what.partition("pids")[0].replace(".start()", "") + "pids, directory = [], made.data_dir\n"
    program = subprocess.Popen([sys.executable, "-c", made_only + _WAIT], stdout=subprocess.PIPE)
    assert program.stdout is not None
    data_dir = program.stdout.readline().decode().strip()
    program.kill()
    program.wait(30)
    program.stdout.close()
    assert not os.path.exists(os.path.dirname(data_dir))


def test_a_directory_of_the_users_own_is_kept(tmp_path: Path) -> None:
    what = _BROKER.replace("EmbeddedBroker(", f"EmbeddedBroker({str(tmp_path / 'data')!r}, ")
    program = subprocess.Popen([sys.executable, "-c", what + _WAIT], stdout=subprocess.PIPE)
    assert program.stdout is not None
    _, pid = program.stdout.readline().decode().split()
    program.kill()
    program.wait(30)
    program.stdout.close()
    wait_until(lambda: not runs(int(pid)))
    assert (tmp_path / "data" / "orders-0").is_dir()
