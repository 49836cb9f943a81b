"""Cost of getting records into the accumulator, per record, and as a ratio to a yardstick of the same run.

`python -m pytest benchmarks/micro --benchmark-columns=min,median,stddev`. Yardsticks: for `append` an empty compiled
method called with the same arguments; for blocks a memcpy of the same value bytes. extra_info has ns and ratio.
"""

from collections.abc import Callable
from typing import Any

import pytest
import pyximport
import setuptools  # noqa: F401  (its distutils: the interpreter's own, which pyximport asks for, is deprecated)

from benchmarks.micro.core import TOPIC, Core, best_s
from benchmarks.workloads import Workload, make_workload
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.blocks import Block

pyximport.install(language_level=3, build_in_temp=True, inplace=False)

from benchmarks.micro.yardstick import Empty  # noqa: E402  (compiled on import)

SIZES = (10, 100, 1000, 10_000)


def _workload(value_bytes: int, keyed: bool) -> Workload:
    return make_workload(max(200, min(5000, 1_000_000 // value_bytes)), value_bytes, keyed=keyed)


def _report(benchmark: Any, count: int, yardstick_s: float, value_bytes: int) -> None:
    best = benchmark.stats.stats.min
    benchmark.extra_info.update(
        ns_per_record=round(best / count * 1e9, 1),
        yardstick_ns=round(yardstick_s / count * 1e9, 1),
        ratio=round(best / yardstick_s, 2),
        gb_per_s=round(value_bytes * count / best / 1e9, 2),
    )


def _run(benchmark: Any, function: Callable[[], object], core: Core) -> None:
    function()
    core.empty()
    benchmark.pedantic(function, setup=core.empty, rounds=60)
    core.empty()


def _send_all(send: Callable[..., object], values: list[bytes], keys: list[bytes] | None) -> None:
    if keys is None:
        for value in values:
            send(TOPIC, value)
    else:
        for value, key in zip(values, keys, strict=True):
            send(TOPIC, value, key)


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("value_bytes", SIZES)
def test_append(benchmark: Any, value_bytes: int, keyed: bool) -> None:
    workload = _workload(value_bytes, keyed)
    values = workload.values.as_list()
    keys = None if workload.keys is None else workload.keys.as_list()
    core = Core()
    yardstick = best_s(lambda: _send_all(Empty().send, values, keys))
    _run(benchmark, lambda: _send_all(core.sender.send, values, keys), core)
    _report(benchmark, len(values), yardstick, value_bytes)
    # A regression guard with room for noise; the figures themselves are in benchmarks/results.
    assert value_bytes > 100 or benchmark.extra_info["ratio"] < 6


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("value_bytes", SIZES)
@pytest.mark.parametrize("form", ["append_many", "append_columns"])
def test_block(benchmark: Any, form: str, value_bytes: int, keyed: bool) -> None:
    workload = _workload(value_bytes, keyed)
    values = workload.values.as_list()
    keys = None if workload.keys is None else workload.keys.as_list()
    core = Core()
    source = memoryview(workload.values.data)
    target = bytearray(source.nbytes)

    def copy() -> None:
        target[:] = source

    def append_many() -> None:
        key = None if keys is None else Column.from_list(keys)
        assert Block(core.accumulator, core.topic, Column.from_list(values), key, timestamp=1).run(1)

    def append_columns() -> None:
        key = None if workload.keys is None else Column.from_offsets(workload.keys.offsets, workload.keys.data)
        value = Column.from_offsets(workload.values.offsets, workload.values.data)
        assert Block(core.accumulator, core.topic, value, key, timestamp=1).run(1)

    yardstick = best_s(copy)
    _run(benchmark, append_many if form == "append_many" else append_columns, core)
    _report(benchmark, len(values), yardstick, value_bytes)
    assert value_bytes < 100 or benchmark.extra_info["ratio"] < 10
