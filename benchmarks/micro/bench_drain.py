"""Cost of sealing a batch with each codec, and of draining 1, 100 and 10,000 partitions.

Yardsticks: for a seal a memcpy of the batch's bytes; for a drain the same number of records in one partition.
"""

from typing import Any

import pytest

from benchmarks.micro.core import TOPIC, Core, best_s
from benchmarks.workloads import make_workload
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.accumulator import memory_holders
from kafkaprod._core.queues.blocks import Block
from kafkaprod.compression import make_codec

BATCH_BYTES = 262_144


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_seal(benchmark: Any, codec: str) -> None:
    workload = make_workload(2000, 100, keyed=False, content="json")
    values = workload.values
    core = Core(partitions=1, codec=make_codec(codec), batch_size=BATCH_BYTES)

    def fill() -> None:
        core.empty()
        value = Column.from_offsets(values.offsets, values.data)
        Block(core.accumulator, core.topic, value, timestamp=1).run(1)

    source = memoryview(values.data)
    target = bytearray(source.nbytes)

    def copy() -> None:
        target[:] = source

    yardstick = best_s(copy)
    benchmark.pedantic(lambda: core.drain.drain(0, 10).refs()[0].succeed(0), setup=fill, rounds=30)
    best = benchmark.stats.stats.min
    benchmark.extra_info.update(
        us_per_batch=round(best * 1e6, 1),
        ratio=round(best / yardstick, 1),
        gb_per_s=round(values.data.nbytes / best / 1e9, 2),
    )
    assert best > 0


@pytest.mark.parametrize("partitions", [1, 100, 10_000])
def test_drain(benchmark: Any, partitions: int) -> None:
    """One 100-byte record in each partition: the cost of a batch and of looking at a partition, none of copying."""
    core = Core(partitions=partitions)
    value = b"x" * 100

    def fill() -> None:
        core.empty()
        for partition in range(partitions):
            core.sender.send(TOPIC, value, None, None, partition)

    benchmark.pedantic(core.empty, setup=fill, rounds=10)
    best = benchmark.stats.stats.min
    benchmark.extra_info.update(ns_per_batch=round(best / partitions * 1e9, 1))
    assert len(memory_holders(core.accumulator)) == 0
