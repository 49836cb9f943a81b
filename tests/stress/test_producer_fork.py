"""fork() while threads send: the child is told loudly and ends cleanly, the parent does not notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sink import Sink
from tests.stress.scale import scaled

ROOT = Path(__file__).resolve().parents[2]

PROLOGUE = """
import multiprocessing, os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: fork() with threads, which is what this is about
from kafkaprod import Producer
from kafkaprod.errors import ForkedProducerError, KafkaError
bootstrap, fork_count = sys.argv[1], int(sys.argv[2])
producer = Producer(bootstrap_servers=bootstrap, linger_ms=2, buffer_memory=4 << 20, batch_size=16384)
accepted = [0] * 4
stop = threading.Event()
latest = producer.send("t", b"x")
latest.result(20)

def send(index):
    global latest
    block = [b"y" * 100] * 50
    while not stop.is_set():
        if index % 2:
            latest = producer.send("t", b"x" * 100)
            accepted[index] += 1
        else:
            producer.send_many("t", block)
            accepted[index] += len(block)

def refused(call):
    try:
        call()
    except ForkedProducerError:
        return
    os._exit(41)

def in_child(future):
    signal.alarm(30)  # a child that hangs dies of it
    refused(lambda: producer.send("t", b"child"))
    refused(lambda: producer.try_send("t", b"child") or producer.send("t", b"child"))
    refused(lambda: producer.send_many("t", [b"child"]))
    refused(lambda: producer.send_columns("t", ([0, 1], b"c")))
    refused(producer.flush)
    refused(producer.metrics)
    refused(lambda: producer.partitions_for("t"))
    if not future.done():
        refused(lambda: future.result())
    producer.close()
    with producer:
        pass

threads = [threading.Thread(target=send, args=(index,)) for index in range(4)]
for thread in threads:
    thread.start()

def finish():
    stop.set()
    for thread in threads:
        thread.join(30)
    producer.close(30)
    print(sum(accepted) + 1, producer.accumulator.pool.in_use)
"""

OS_FORK = """
for number in range(fork_count):
    future = latest
    pid = os.fork()
    if pid == 0:
        in_child(future)
        if number % 3 == 0:
            os._exit(7)
        if number % 3 == 1:  # a producer of its own works
            with Producer(bootstrap_servers=bootstrap) as own:
                own.send("child", b"own").result(20)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7, number
finish()
"""

MULTIPROCESSING = """
context = multiprocessing.get_context("fork")
for number in range(fork_count):
    process = context.Process(target=in_child, args=(latest,))
    process.start()
    process.join(40)
    assert process.exitcode == 0, (number, process.exitcode)
finish()
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink({"t": 6, "child": 1}) as sink:
        yield sink


@pytest.mark.parametrize(
    ("program", "count"),
    [(OS_FORK, scaled(21, 1000)), (MULTIPROCESSING, scaled(9, 300))],
    ids=["os.fork", "multiprocessing"],
)
def test_children_are_refused_and_the_parent_goes_on(sink: Sink, program: str, count: int) -> None:
    process = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + program, sink.bootstrap, str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120 + count,
    )
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    accepted, in_use = map(int, process.stdout.split())
    assert in_use == 0
    offsets = sink.offsets()
    assert sum(offsets["t"]) == accepted
    assert sum(offsets["child"]) == (len(range(1, count, 3)) if program is OS_FORK else 0)


FORK_DURING_WAITS = """
import time
options = {"bootstrap_servers": bootstrap, "buffer_memory": 1 << 20, "batch_size": 16384}
options |= {"max_block_ms": 10**6, "request_timeout_ms": 10**6, "delivery_timeout_ms": 2 * 10**6}  # 200 forks take long
flushing, filling, asking, closing = (Producer(**options) for _ in range(4))
for each in (flushing, filling, closing):
    each.send("t", b"first").result(20)
os.kill(int(sys.argv[3]), signal.SIGSTOP)
flushing.send("t", b"x")
closing.send("t", b"x")
sent = [0]

def fill():
    for _ in range(40):
        filling.send("t", b"x" * 50_000)
        sent[0] += 1

calls = {
    flushing: flushing.flush,
    filling: fill,
    asking: lambda: asking.partitions_for("t"),
    closing: closing.close,
}
waiting = [threading.Thread(target=call) for call in calls.values()]
for thread in waiting:
    thread.start()
deadline = time.monotonic() + 30
while not (
    flushing._engine.sender.waiting_flushes
    and filling.accumulator.pool.waiter_count
    and asking._engine.topic_watch._waiters
    and closing._engine._end_waiters
):
    assert time.monotonic() < deadline
    time.sleep(0.001)
for number in range(fork_count):
    pid = os.fork()
    if pid == 0:
        for producer in (flushing, filling, asking):
            in_child(latest)
        closing.close()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7, number
os.kill(int(sys.argv[3]), signal.SIGCONT)
for thread in waiting:
    thread.join(60)
    assert not thread.is_alive()
in_use = 0
for each in (flushing, filling, asking, closing, producer):
    each.close(30)
    in_use += each.accumulator.pool.in_use
print(1 + 3 + 2 + sent[0], in_use)
"""


def test_fork_during_every_wait_leaves_the_waits_to_the_parent(sink: Sink) -> None:
    program = PROLOGUE.partition("threads = [")[0] + FORK_DURING_WAITS
    count = scaled(3, 200)
    try:
        process = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program, sink.bootstrap, str(count), str(sink.pid)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120 + 5 * count,
        )
    finally:
        os.kill(sink.pid, signal.SIGCONT)
    assert process.returncode == 0, process.stderr
    sent, in_use = map(int, process.stdout.split())
    assert in_use == 0
    assert sum(sink.offsets()["t"]) == sent == 46


BLOCKS_IN_A_CHILD = """
import time
producer = Producer(bootstrap_servers=bootstrap, linger_ms=50)
rows = [b"y" * 2000] * 5000
looks = [
    lambda result: result.done(),
    lambda result: result.wait(1),
    lambda result: result.offsets,
    lambda result: result.ends(),
    lambda result: result.add_done_callback(print),
]
producer.send("own", b"first").result(20)
stop = threading.Event()

def send():
    while not stop.is_set():
        producer.send_many("own", rows)

threads = [threading.Thread(target=send) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(fork_count):
    result = producer.send_many("own", [b"z"])  # its result objects are made by the first look, in the child
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # a child that hangs dies of it
        refused(lambda: looks[number % len(looks)](result))
        assert len(result) == 1 and list(result.partitions) == [0]
        del result
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 7:
        stop.set()
        sys.exit(f"child {number} ended with {status}")
    assert result.wait(20)
stop.set()
for thread in threads:
    thread.join(30)
producer.close(30)
"""


def test_results_of_blocks_in_a_child_are_refused() -> None:
    """Threads that append blocks hold a partition's lock without the GIL: a child may inherit it held for ever."""
    refused = PROLOGUE[PROLOGUE.index("def refused(call):") : PROLOGUE.index("def in_child")]
    program = PROLOGUE.partition("producer = Producer(")[0] + refused + BLOCKS_IN_A_CHILD
    count = scaled(40, 400)
    with Sink({"own": 1}) as sink:
        process = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program, sink.bootstrap, str(count)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120 + count,
        )
    assert process.returncode == 0, process.stderr
