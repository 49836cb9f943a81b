"""Memory that the system refuses: MemoryError, and never for a record that is on its way."""

import subprocess
import sys
from textwrap import dedent
from typing import Any, cast

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.queues.completion import BatchResult, ResultMaker
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod._core.requests.settlement import abort_batches, incomplete_batches
from kafkaprod.errors import ProducerClosedError
from tests.support.builds.sanitized import UNDER_ASAN
from tests.support.failing_memory import failing

POSITIONS = 40


def make_accumulator():
    accumulator = Accumulator(BufferPool(1 << 22), 4096, 1 << 16, ResultMaker(BatchResult), lambda: None)
    accumulator.set_topic("t", [1])
    return accumulator


def queued_records(accumulator):
    return sum(ref.record_count for ref in incomplete_batches(accumulator))


def with_one_failure(position, call):
    """Call while Python's allocation number `position` fails; return what it raised."""
    try:
        with failing(position):
            call()
    except MemoryError as error:
        return error
    return None


@pytest.mark.parametrize("batches_are_new", [True, False])
def test_send_that_raises_memory_error_queues_nothing(batches_are_new):
    raised = 0
    for position in range(POSITIONS):
        accumulator = make_accumulator()
        send = RecordSender(accumulator, cast(Any, print)).send
        kept = None if batches_are_new else send("t", b"before")
        before = queued_records(accumulator)
        failed = with_one_failure(position, lambda send=send: send("t", b"v", b"k"))
        del kept
        raised += failed is not None
        assert queued_records(accumulator) - before == (0 if failed else 1), f"allocation {position}"
        abort_batches(accumulator, ProducerClosedError("over"))
    assert raised > 0


def test_block_that_raises_memory_error_queues_nothing():
    for position in range(POSITIONS):
        accumulator = make_accumulator()
        block = Block(accumulator, accumulator.topics["t"], Column.from_list([b"v"] * 10))
        failed = with_one_failure(position, lambda block=block: block.run(-1))
        assert queued_records(accumulator) == (0 if failed else 10), f"allocation {position}"
        abort_batches(accumulator, ProducerClosedError("over"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.skipif(UNDER_ASAN, reason="ASan reserves its memory in advance")
@pytest.mark.parametrize("way", ["one", "block"])
def test_memory_that_the_system_refuses_is_no_full_buffer(way):
    script = """
        import resource, sys
        from kafkaprod._core.columns.columns import Column
        from kafkaprod._core.queues.blocks import Block
        from tests.unit._core.queues.test_memory_shortage import *
        accumulator = Accumulator(BufferPool(1 << 40), 1 << 20, 1 << 16, ResultMaker(BatchResult), lambda: None)
        accumulator.set_topic("t", [1])
        send = RecordSender(accumulator, print).send
        send("t", b"first")
        value = b"x" * 60_000
        rows = Column.from_list([value] * 10_000)
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (64 << 20),) * 2)
        try:
            if sys.argv[1] == "one":
                while send("t", value) is not None:
                    pass
            else:
                Block(accumulator, accumulator.topics["t"], rows).run(-1)
            print("no error")
        except MemoryError as error:
            print("MemoryError", error)
    """
    command = [sys.executable, "-c", dedent(script), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("MemoryError"), done.stdout + done.stderr
