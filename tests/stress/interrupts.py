"""What the tests of Ctrl-C share: a producer whose broker is stopped, and a signal once a call waits."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.sink import Sink
from kafkaprod import Producer
from tests.stress.scale import wait_until

LIMIT_S = 0.1
SLACK_S = 0.9  # what a loaded machine adds, beside the time for which it runs others


class Stalled:
    """A producer whose broker is stopped after the first record."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.producer = Producer(
            bootstrap_servers=sink.bootstrap,
            buffer_memory=1 << 20,
            batch_size=65536,
            # Nothing ends a wait but the signal, however slow the machine is.
            max_block_ms=3_600_000,
            request_timeout_ms=3_600_000,
            delivery_timeout_ms=7_200_000,
        )
        self.engine = self.producer._engine
        self.producer.send("t", b"first").result(20)
        self.accepted = 1
        os.kill(sink.pid, signal.SIGSTOP)
        self.future = self.producer.send("t", b"stalled")
        self.block = self.producer.send_many("t", [b"stalled"])
        self.table = self.producer.send_table("t", {"value": [b"stalled"]})
        self.accepted += 3

    def fill(self) -> None:
        while (future := self.producer.try_send("t", b"x" * 50_000)) is not None:
            self.future = future
            self.accepted += 1


def interrupt(
    call: Callable[[], object], is_waiting: Callable[[], object], again_after_s: float | None = None
) -> float:
    """Send SIGINT once `call` waits; return after how many seconds it raised KeyboardInterrupt.

    Seconds in which the threads of this process could run, and the machine ran others, do not count.

    `again_after_s`: send another one then. An event loop without a timer misses a signal that comes in the instant
    before its system call, until something else wakes it; whoever pressed Ctrl-C presses it again.
    """
    sent: list[tuple[float, float]] = []
    is_over = threading.Event()

    def kill() -> None:
        try:
            wait_until(is_waiting, "the call waits")
        finally:  # nothing else ends the call
            sent.append((queued_s(), time.monotonic()))
            os.kill(os.getpid(), signal.SIGINT)
        if not is_over.wait(again_after_s):  # it lives on to be among the threads of queued_s()
            os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        call()
    except KeyboardInterrupt:
        took_s = time.monotonic() - sent[0][1] - (queued_s() - sent[0][0])
    else:
        raise AssertionError("the call returned")
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            is_over.set()
            killer.join(20)
    return took_s


def queued_s() -> float:
    """For how long threads of this process were ready to run and no processor took them; 0.0 if not known."""
    queued_ns = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread ended
            queued_ns += int(thread.read_text().split()[1])
    return queued_ns / 1e9


def show(took_s: Sequence[float]) -> None:
    """For ``pytest -s``."""
    print(f"{len(took_s)} signals, ms: median {statistics.median(took_s) * 1000:.2f}, most {max(took_s) * 1000:.2f}")
