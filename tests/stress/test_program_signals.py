"""Ctrl-C in programs that wait: the event loop of an asyncio program ends, a command gives the prompt back."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.sink import Sink
from kafkaprod import AsyncProducer
from kafkaprod.cli.command_producer import INTERRUPTED_S
from kafkaprod.results.record_wait import LoopWaiter
from tests.stress.interrupts import LIMIT_S, SLACK_S, Stalled, interrupt, show
from tests.stress.scale import scaled, wait_until
from tests.support.threads import thread_count

PIPE_BYTES = 1 << 20
START_S = 120  # at most, of a command on a loaded machine
LOOP_S = 1.5  # a signal just before its system call waits for the event loop's next timer, or for another signal
TEARDOWN_S = 1.5  # of an interpreter on a loaded machine; 0.06 on a quiet one
FUTEX, READ = {"x86_64": (202, 0), "aarch64": (98, 63)}[platform.machine()]  # system calls
ROW = b"x" * 50_000


# -- asyncio -----------------------------------------------------------------------------------------------------------

VERBS: dict[str, tuple[Callable[[AsyncProducer, Stalled], object], Callable[[Stalled], object]]] = {
    "send, metadata": (lambda producer, _: producer.send("other", b"v"), lambda s: s.engine.topic_watch._waiters),
    "send, memory": (lambda producer, _: producer.send("t", ROW), lambda s: s.engine.accumulator.pool.waiter_count),
    "send_and_wait": (lambda producer, _: producer.send_and_wait("t", b"v"), lambda s: is_awaited()),
    "partitions_for": (lambda producer, _: producer.partitions_for("other"), lambda s: s.engine.topic_watch._waiters),
    "a record": (lambda _, stalled: stalled.future, lambda s: is_awaited()),
    "a block": (lambda _, stalled: stalled.block, lambda s: is_awaited()),
    "flush": (lambda producer, _: producer.flush(), lambda s: is_flushed(s)),
    "close": (lambda producer, _: producer.close(), lambda s: s.engine._end_waiters),
}
BLOCKS: dict[str, Callable[[AsyncProducer], object]] = {
    "send_many": lambda producer: producer.send_many("t", [ROW]),
    "send_table": lambda producer: producer.send_table("t", {"value": [ROW]}),
}


def is_awaited() -> bool:
    waiters = [each for each in gc.get_objects() if isinstance(each, LoopWaiter)]
    running = [waiter for waiter in waiters if not waiter.loop.is_closed()]
    return any(not wait.done() for waiter in running for wait in waiter.waits) or any(
        not wait.done() for waiter in running for wait in waiter.records
    )


def is_flushed(stalled: Stalled) -> bool:
    return bool(stalled.engine.sender.waiting_flushes)


def of(stalled: Stalled) -> AsyncProducer:
    producer = AsyncProducer.__new__(AsyncProducer)
    for part in ("_engine", "_host", "_intake", "_blocks", "_kept_writers"):
        setattr(producer, part, getattr(stalled.producer, part))
    producer._path = stalled.producer
    return producer


async def awaiting(awaitable: object) -> None:
    await awaitable  # type: ignore[misc]


@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_ends_an_asyncio_program_that_waits(stalled: Stalled, verb: str) -> None:
    call, is_waiting = VERBS[verb]
    if verb == "send, memory":
        stalled.fill()
    threads = thread_count()
    producer = of(stalled)
    took_s = [
        interrupt(lambda: asyncio.run(awaiting(call(producer, stalled))), lambda: is_waiting(stalled), LOOP_S)
        for _ in range(scaled(5, 200))
    ]
    show(took_s)
    assert statistics.median(took_s) < LIMIT_S + SLACK_S
    assert max(took_s) < LOOP_S + SLACK_S
    assert thread_count() == threads
    assert stalled.engine.accumulator.pool.waiter_count == 0
    assert not stalled.engine.topic_watch._waiters
    assert not stalled.engine._end_waiters


@pytest.mark.parametrize("verb", BLOCKS)
def test_ctrl_c_ends_an_asyncio_program_whose_block_waits(stalled: Stalled, verb: str) -> None:
    """The thread that copies the block goes on, as the documentation has it, and keeps no program from ending."""
    stalled.fill()
    producer, pool = of(stalled), stalled.engine.accumulator.pool
    took_s = []
    for number in range(3):
        waiting = lambda number=number: pool.waiter_count > number  # noqa: E731
        took_s.append(interrupt(lambda: asyncio.run(awaiting(BLOCKS[verb](producer))), waiting, LOOP_S))
    show(took_s)
    assert statistics.median(took_s) < LIMIT_S + SLACK_S
    assert max(took_s) < LOOP_S + SLACK_S
    os.kill(stalled.sink.pid, signal.SIGCONT)
    wait_until(lambda: pool.waiter_count == 0, "the blocks are queued")


# -- the command -------------------------------------------------------------------------------------------------------


@contextmanager
def command(bootstrap: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kafkaprod produce`, which reads from a pipe of PIPE_BYTES."""
    line = [sys.executable, "-m", "kafkaprod", "produce", "-b", bootstrap, "-t", "t", *arguments]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            yield process
        finally:
            process.kill()


def send_line(process: subprocess.Popen[bytes], line: bytes = b"line\n") -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def wait_for_records(sink: Sink, count: int = 1) -> None:
    wait_until(lambda: sink.counts().records == count, f"{count} records")


def wait_until_in(process: subprocess.Popen[bytes], system_call: int) -> None:
    """Its main thread stands in a system call."""
    current = Path(f"/proc/{process.pid}/task/{process.pid}/syscall")
    wait_until(lambda: current.read_text().split()[0] == str(system_call), f"system call {system_call}")


def wait_until_sent(sink: Sink) -> None:
    """Bytes wait in a socket of the stopped sink."""
    port = int(sink.bootstrap.rpartition(":")[2])

    def is_unread(line: str) -> bool:
        _, local, _, _, queues, *_ = line.split()
        return int(local.partition(":")[2], 16) == port and int(queues.partition(":")[2], 16) > 0

    wait_until(lambda: any(map(is_unread, Path("/proc/net/tcp").read_text().splitlines()[1:])), "bytes for the sink")


def interrupt_command(process: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """Send SIGINT; return what it says on stderr. It must end within the limit, with exit code 130."""
    started_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    code = process.wait(20)
    took_s = time.monotonic() - started_s
    print(f"{took_s * 1000:.0f} ms to the end of the process")
    assert process.stderr is not None
    said = process.stderr.read()
    assert code == 130, said
    assert b"produce: interrupted" in said
    assert took_s < limit_s + LIMIT_S + SLACK_S + TEARDOWN_S
    return said


def test_ctrl_c_ends_a_command_that_waits_for_input(sink: Sink) -> None:
    with command(sink.bootstrap) as process:
        send_line(process)
        wait_for_records(sink)
        wait_until_in(process, READ)
        interrupt_command(process, 0.0)
    wait_for_records(sink)


def test_ctrl_c_ends_a_command_that_waits_for_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(START_S)
        with command(f"127.0.0.1:{listener.getsockname()[1]}") as process:
            send_line(process)
            connection, _ = listener.accept()  # and it gets no answer
            with connection:
                interrupt_command(process, 0.0)


def test_ctrl_c_ends_a_command_that_waits_for_memory_and_says_what_is_lost(sink: Sink) -> None:
    with command(sink.bootstrap, "-X", "buffer_memory=262144", "-X", "batch_size=16384") as process:
        send_line(process)
        wait_for_records(sink)
        os.kill(sink.pid, signal.SIGSTOP)
        send_line(process, (b"y" * 10_000 + b"\n") * 60)
        wait_until_sent(sink)
        wait_until_in(process, FUTEX)
        said = interrupt_command(process, INTERRUPTED_S)
    assert b"records not delivered" in said


def test_ctrl_c_ends_a_command_that_waits_for_its_last_records(sink: Sink) -> None:
    with command(sink.bootstrap) as process:
        send_line(process)
        wait_for_records(sink)
        os.kill(sink.pid, signal.SIGSTOP)
        send_line(process)
        assert process.stdin is not None
        process.stdin.close()
        wait_until_sent(sink)
        wait_until_in(process, FUTEX)
        said = interrupt_command(process, INTERRUPTED_S)
    assert b"1 record not delivered" in said
