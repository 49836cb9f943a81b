"""The interpreter ends while records are on their way: each is delivered or reported, and the exit code is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sink import Sink
from kafkaprod.engine.host import EXIT_TIMEOUT_S
from tests.stress.scale import scaled

ROOT = Path(__file__).resolve().parents[2]
EXIT_BOUND_S = 40.0  # EXIT_TIMEOUT_S, a second to fail what is left, the rest for an interpreter on a busy machine

PROLOGUE = """
import atexit, os, signal, sys, threading
bootstrap, sink_pid = sys.argv[1], int(sys.argv[2])
futures, threads = [], []

def tell():  # registered before the producer's own exit handler, so it runs after that
    for thread in threads:
        thread.join(10)
    print(len(futures), sum(future.succeeded() for future in futures), sum(future.done() for future in futures))

atexit.register(tell)
from kafkaprod import Producer
from kafkaprod.engine import host
from kafkaprod.errors import KafkaError
producer = Producer(bootstrap_servers=bootstrap, linger_ms=1000)

def send(count):
    for i in range(count):
        futures.append(producer.send("t", b"x" * 100))
"""

PROGRAMS = {
    "records pending": ("send(1000)", 0),
    "a batch just begun": ("send(1)", 0),
    "nothing sent": ("", 0),
    "sys.exit": ("send(1000); sys.exit(3)", 3),
    "an unhandled exception": ("send(1000); raise ValueError('mine')", 1),
    "a dropped producer": ("send(1000); del producer", 0),
    "an interrupted close": (
        """
send(1000)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.002)
try:
    producer.close()
    signal.pause()
except KeyboardInterrupt:
    pass
""",
        0,
    ),
    "daemon threads sending": (
        """
def loop():
    try:
        while True:
            futures.append(producer.send("t", b"x" * 100))
    except KafkaError:
        pass

send(1)
threads += [threading.Thread(target=loop, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
while len(futures) < 2000:
    futures[-1].exception(10)
""",
        0,
    ),
    "a callback at work": (
        """
def slow(future):
    threading.Event().wait(0.05)
send(1000)
for future in futures[::300]:
    future.add_done_callback(slow)
""",
        0,
    ),
}


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink({"t": 3}) as sink:
        yield sink


def run(sink: Sink, program: str) -> tuple[subprocess.CompletedProcess[str], list[int], float]:
    """Run a program; return its process, the numbers it printed (futures, succeeded, done), and how long it took."""
    started = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + program, sink.bootstrap, str(sink.pid)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return process, [int(word) for word in process.stdout.split()], time.monotonic() - started


@pytest.mark.parametrize(("program", "exit_code"), PROGRAMS.values(), ids=PROGRAMS)
def test_everything_sent_before_the_end_is_delivered(sink: Sink, program: str, exit_code: int) -> None:
    for _ in range(scaled(2, 120)):
        sink.reset()
        process, printed, took_s = run(sink, program)
        assert process.returncode == exit_code, process.stderr
        count, succeeded, done = printed
        assert count == succeeded == done, process.stderr
        assert sink.counts().records == count
        assert took_s < EXIT_BOUND_S
        assert "Fatal Python error" not in process.stderr
        if exit_code != 1:
            assert process.stderr == ""


def test_what_a_stalled_broker_keeps_is_reported_within_the_bound(sink: Sink) -> None:
    program = """
host.EXIT_TIMEOUT_S = 0.3
send(1)
futures[0].result(10)
os.kill(sink_pid, signal.SIGSTOP)
send(500)
"""
    for _ in range(scaled(2, 50)):
        try:
            process, printed, took_s = run(sink, program)
        finally:
            os.kill(sink.pid, signal.SIGCONT)
        assert process.returncode == 0, process.stderr
        assert printed == [501, 1, 501]
        assert took_s < EXIT_TIMEOUT_S  # the program has a shorter one
        assert "500 records not delivered" in process.stderr


def test_a_callback_that_never_returns_does_not_hold_up_the_end(sink: Sink) -> None:
    program = """
host.EXIT_TIMEOUT_S = 0.2
began = threading.Event()
def hang(future):
    began.set()
    threading.Event().wait()
send(1)
futures[0].add_done_callback(hang)
assert began.wait(20)
"""
    process, _, took_s = run(sink, program)
    assert process.returncode == 0, process.stderr
    assert took_s < EXIT_TIMEOUT_S
    assert "the sender thread does not end; it runs hang()" in process.stderr
