"""Memory follows data and not partitions; the cost of a record does not grow with the number of partitions."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.completion import BatchResult
from tests.native import building
from tests.support.builds.sanitized import measures_memory
from tests.support.core.core_engine import TIMESTAMP, TOPIC, Engine, succeed

MEBIBYTE = 1 << 20
TEN_THOUSAND_PARTITIONS = """
import os
from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.requests.drain import Drain
from kafkaprod.results.batch import BatchCompletion

def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident_bytes()
accumulator = Accumulator(BufferPool(64 << 20), 262144, 1 << 20, BatchCompletion)
topic = accumulator.set_topic("t", [1] * 10_000)
drain = Drain(accumulator)
drain.update_leaders()
futures = [accumulator.append(topic, None, b"x" * 100, None, partition, 0) for partition in range(10_000)]
assert all(future is not None for future in futures)
print(resident_bytes() - before)
"""


@measures_memory
def test_ten_thousand_partitions_with_a_record_each_take_less_than_60_mebibytes() -> None:
    """Pool, queues, batches, result objects and futures in all."""
    done = subprocess.run(
        [sys.executable, "-c", TEN_THOUSAND_PARTITIONS], capture_output=True, text=True, check=True, timeout=60
    )
    grown = int(done.stdout)
    print(f"{grown / MEBIBYTE:.1f} MiB for 10,000 partitions")
    assert 10 * MEBIBYTE < grown < 60 * MEBIBYTE  # 10,000 slabs of 1 KiB at the least: the measurement works


RECORDS = 100_000
VALUE = b"x" * 100
KEYS = [b"key-%d" % (i * 2_654_435_761 % (1 << 30)) for i in range(RECORDS)]


class Filled:
    """An engine that is filled and emptied again and again, so that its memory is warm."""

    def __init__(self, partition_count: int) -> None:
        self.engine = Engine(
            leaders=[1] * partition_count,
            batch_size=262144,
            pool_bytes=512 * MEBIBYTE,
            max_request_bytes=512 * MEBIBYTE,
            make_result=BatchResult,
        )
        self.topic = self.engine.accumulator.topics[TOPIC]
        self.partition_count = partition_count

    def ns_per_record(self, way_in: Callable[[Filled], None]) -> float:
        append = self.engine.accumulator.append
        for partition in range(self.partition_count):
            append(self.topic, None, b"every partition has a batch", None, partition, TIMESTAMP)
        started = time.perf_counter_ns()
        way_in(self)
        taken = time.perf_counter_ns() - started
        for request in self.engine.take_all():
            succeed(request)
        return taken / RECORDS


def append_keyed(filled: Filled) -> None:
    append, topic = filled.engine.accumulator.append, filled.topic
    for key in KEYS:
        append(topic, key, VALUE, None, -1, TIMESTAMP)


def append_unkeyed(filled: Filled) -> None:
    append, topic = filled.engine.accumulator.append, filled.topic
    for _ in KEYS:
        append(topic, None, VALUE, None, -1, TIMESTAMP)


def block_keyed(filled: Filled) -> None:
    assert Block(filled.engine.accumulator, filled.topic, VALUE_COLUMN, key=KEY_COLUMN).run(0)


def block_unkeyed(filled: Filled) -> None:
    assert Block(filled.engine.accumulator, filled.topic, VALUE_COLUMN).run(0)


KEY_COLUMN = Column.from_list(KEYS)
VALUE_COLUMN = Column.from_list([VALUE] * RECORDS)


@measures_memory
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way_in", "times_the_machine"), [(append_unkeyed, 1), (block_unkeyed, 1), (append_keyed, 6), (block_keyed, 2)]
)
def test_cost_of_a_record_grows_by_half_from_ten_to_ten_thousand_partitions_and_by_what_memory_costs(
    way_in: Callable[[Filled], None], times_the_machine: int
) -> None:
    """Best of several, alternating, so that a busy machine slows both alike; more if it is too busy to tell.

    Random keys find partition, batch and slab in memory and not in the cache, and so does a bare loop of copies. What
    that loses is allowed on top: several times to one record, which waits for a lock, a slab and a result in turn.
    """
    scattered_copies = building.load("scattered_copies")
    small, large = Filled(10), Filled(10_000)
    few = many = machine_few = machine_many = float("inf")
    for turn in range(30):
        few = min(few, small.ns_per_record(way_in))
        many = min(many, large.ns_per_record(way_in))
        machine_few = min(machine_few, scattered_copies.ns_per_copy(10))
        machine_many = min(machine_many, scattered_copies.ns_per_copy(10_000))
        allowed = 1.5 * few + times_the_machine * (machine_many - machine_few)
        if turn >= 4 and many <= allowed:
            break
    print(
        f"{way_in.__name__}: {few:.0f} ns at 10 partitions, {many:.0f} ns at 10,000: x{many / few:.2f}; "
        f"bare copies {machine_few:.0f} and {machine_many:.0f} ns: x{machine_many / machine_few:.2f}"
    )
    assert many <= allowed
