"""Threads against each other, for hours, best on a Python without the GIL: `python -m tests.campaigns.free_threads`.

    python3.13t -m tests.campaigns.free_threads [--seconds 60] [--only leaders] [--threads 4]

Each program runs in a process of its own, so that one that dies is told like any other fault:

    leaders      metadata comes while partitioners look at a topic's leaders
    growth       topics grow while blocks with keys are made
    sleep-order  a sender falls asleep while a batch is opened: the core's own stores and loads, in a tight loop
    wake-ups     the same in a whole producer: each record meets a sender that falls asleep
    forks        children look at results of blocks while other threads append blocks
    records      threads send in every way, while metadata comes, topics grow and children are forked; then the logs are
                 read: each record once, in order for each thread and partition

`--default-timeouts` gives the producers of `records` the timeouts of their defaults, for a machine with no other work.

The last line of each says what it did; exit code 1 if one found a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from benchmarks.sink import Sink
from kafkaprod import BlockResult, Producer
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod.errors import ForkedProducerError
from tests.campaigns.threads_in_logs import run_records
from tests.native.building import load
from tests.support.threads import at_once

SLOWEST_S = 50.0  # of a record alone; a sender that is not woken sleeps for a minute
CHILD_S = 120.0  # on a machine with much other work
SLEEPS = 20_000  # rounds at once


def run_leaders(seconds: float, threads: int) -> str:
    """Replace the leaders of a topic, which a partitioner reads from other threads."""
    accumulator = Accumulator(BufferPool(1 << 20))
    topic = accumulator.set_topic("t", [1] * 6)
    end_s = time.monotonic() + seconds

    def read() -> int:
        count = 0
        while time.monotonic() < end_s:
            for _ in range(1000):
                leaders = topic.leaders
                assert len(leaders) == 6
                assert leaders[0] == leaders[5]
            count += 1000
        return count

    def update() -> int:
        count = 0
        while time.monotonic() < end_s:
            accumulator.set_topic("t", [count % 1000 + 300] * 6)  # numbers that are objects of their own
            count += 1
        return count

    updates, *looks = at_once([update, *[read] * max(threads, 2)])
    return f"{updates:,} updates, {sum(looks):,} looks"


def run_growth(seconds: float, threads: int) -> str:
    """Make blocks of rows with keys for topics that get their other partitions at this moment."""
    accumulator = Accumulator(BufferPool(1 << 31), 1 << 14, 1 << 16)
    value, key = Column.from_list([b"v"] * 4), Column.from_list([b"k%d" % i for i in range(4)])
    latest = [accumulator.set_topic("t0", [1])]
    end_s = time.monotonic() + seconds

    def append() -> int:
        count = 0
        while time.monotonic() < end_s:
            for _ in range(200):
                Block(accumulator, latest[0], value, key, timestamp=0).run(0)
            count += 200
        return count

    def grow() -> int:
        count = 0
        while time.monotonic() < end_s:
            count += 1
            latest[0] = accumulator.set_topic(f"t{count}", [1])
            time.sleep(0)
            accumulator.set_topic(f"t{count}", [1] * 3000)
        return count

    topics, *blocks = at_once([grow, *[append] * max(threads, 2)])
    return f"{topics:,} topics, {sum(blocks):,} blocks"


def lost_wake_ups(rounds: int, has_fences: bool) -> int:
    """Return how many of so many rounds lose their wake-up."""
    order = load("sleep_order").SleepOrder(has_fences)
    lost: int = at_once([lambda: order.sleep(rounds), lambda: order.append(rounds)])[0]
    return lost


def run_sleep_order(seconds: float, threads: int) -> str:
    """Let a sleeper and an appender meet at the two stores and loads that decide whether a wake-up is lost."""
    end_s = time.monotonic() + seconds
    rounds = lost = planted_rounds = planted = 0
    while time.monotonic() < end_s:
        lost += lost_wake_ups(SLEEPS, has_fences=True)
        rounds += SLEEPS
        if planted_rounds < rounds // 10:
            planted += lost_wake_ups(SLEEPS, has_fences=False)
            planted_rounds += SLEEPS
    assert lost == 0, f"{lost} of {rounds} wake-ups are lost"
    return f"{rounds:,} rounds; without the fences {planted:,} of {planted_rounds:,} are lost"


def run_wake_ups(seconds: float, threads: int) -> str:
    """Send one record at a time to a sender that has nothing else to do."""
    slowest_s, count, end_s = 0.0, 0, time.monotonic() + seconds
    with Sink({"t": 1}) as sink, Producer(bootstrap_servers=sink.bootstrap, linger_ms=0) as producer:
        while time.monotonic() < end_s:
            begun_s = time.monotonic()
            producer.send("t", b"x").result(SLOWEST_S)
            slowest_s = max(slowest_s, time.monotonic() - begun_s)
            count += 1
    return f"{count:,} records one by one, the slowest {slowest_s * 1000:.0f} ms"


LOOKS: list[Callable[[BlockResult], object]] = [
    lambda result: result.done(),
    lambda result: result.wait(1),
    lambda result: result.offsets,
    lambda result: result.ends(),
]


def look_in_child(result: BlockResult, number: int) -> int:
    """Fork; return how the child that looked at a result ended: 0 if it was refused."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(CHILD_S))  # a child that hangs dies of it
        code = 1
        with contextlib.suppress(BaseException):
            try:
                LOOKS[number % len(LOOKS)](result)
            except ForkedProducerError:
                code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_forks(seconds: float, threads: int) -> str:
    """Have children look at results whose partition's lock a thread of the parent may hold."""
    rows, stop = [b"y" * 2000] * 5000, threading.Event()
    end_s = time.monotonic() + seconds

    with Sink({"t": 1}) as sink, Producer(bootstrap_servers=sink.bootstrap, linger_ms=50) as producer:

        def send() -> None:
            while not stop.is_set():
                producer.send_many("t", rows)

        def fork() -> int:
            count = 0
            try:
                while time.monotonic() < end_s:
                    result = producer.send_many("t", [b"z"])  # its result objects are made by the first look
                    code = look_in_child(result, count)
                    assert code == 0, f"child {count} ended with {code}"
                    assert result.wait(CHILD_S), f"the parent's block {count} has no outcome"
                    count += 1
            finally:
                stop.set()
            return count

        producer.send("t", b"first").result(CHILD_S)
        count = at_once([fork, *[send] * 2])[0]
    return f"{count:,} children"


PROGRAMS: dict[str, Callable[[float, int], str]] = {
    "leaders": run_leaders,
    "growth": run_growth,
    "sleep-order": run_sleep_order,
    "wake-ups": run_wake_ups,
    "forks": run_forks,
    "records": run_records,
}


def run_alone(name: str, seconds: float, threads: int, more: list[str]) -> bool:
    """Run a program in a process of its own; return whether it found no fault."""
    command = ["-X", "faulthandler", "-m", "tests.campaigns.free_threads", "--here", "--only", name]
    command += ["--seconds", str(seconds), "--threads", str(threads), *more]
    return subprocess.run([sys.executable, *command], check=False).returncode == 0


def main() -> int:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each program")
    parser.add_argument("--threads", type=int, default=4, help="that send, make blocks or look")
    parser.add_argument("--only", choices=PROGRAMS, action="append", help="may be repeated")
    parser.add_argument("--default-timeouts", action="store_true", help="of `records`")
    parser.add_argument("--here", action="store_true", help="in this process: a fault ends it")
    options = parser.parse_args()
    names = options.only or list(PROGRAMS)
    if not options.here:
        more = ["--default-timeouts"] if options.default_timeouts else []
        faults = [name for name in names if not run_alone(name, options.seconds, options.threads, more)]
        return 1 if faults else 0
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    programs = PROGRAMS | ({"records": partial(run_records, timeouts={})} if options.default_timeouts else {})
    for name in names:
        done = programs[name](options.seconds, options.threads)
        gil = "with the GIL" if has_gil else "without the GIL"
        print(f"{name}, {options.threads} threads, {options.seconds:.0f} s, {gil}: {done}, no fault", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
