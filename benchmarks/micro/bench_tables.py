"""What send_table adds to send_columns: the same rows through both, into the accumulator, in turns.

`python -m benchmarks.micro.bench_tables`. 8-byte keys, 100-byte values, 6 partitions, no network. CPU ns a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.queues.blocks import Block
from kafkaprod.tables import TablePlan, read_batches
from tests.support.core.core_engine import TOPIC, Engine

ROWS = 200_000
VALUE_BYTES = 100
TURNS = 7
NOW_MS = 1_700_000_000_000


def append(engine: Engine, value: Column, key: Column | None, count: int) -> None:
    block = Block(engine.accumulator, engine.accumulator.topics[TOPIC], value, key, None, count, None, NOW_MS)
    assert block.run(engine.now_ms)


def append_table(engine: Engine, data: object) -> None:
    plan = TablePlan(TOPIC, "value", "key")
    for batch in read_batches(data):
        for part in plan.parts(batch, NOW_MS):
            append(engine, part.value, part.key, len(part.rows))


def main() -> None:
    keys = [b"%08d" % (i * 7919 % 100_000_000) for i in range(ROWS)]
    values = [b"%08d" % i + b"v" * (VALUE_BYTES - 8) for i in range(ROWS)]
    key_offsets = np.arange(0, 8 * ROWS + 1, 8, dtype=np.int32)
    value_offsets = np.arange(0, VALUE_BYTES * ROWS + 1, VALUE_BYTES, dtype=np.int32)
    key_data, value_data = b"".join(keys), b"".join(values)
    table = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.binary())})
    dictionary = table.set_column(0, "key", table["key"].dictionary_encode())
    frame = pl.from_arrow(table)
    ways: dict[str, Callable[[Engine], None]] = {
        "send_columns": lambda engine: append(
            engine, Column.from_offsets(value_offsets, value_data), Column.from_offsets(key_offsets, key_data), ROWS
        ),
        "send_table, pyarrow": lambda engine: append_table(engine, table),
        "send_table, polars (views)": lambda engine: append_table(engine, frame),
        "send_table, dictionary key": lambda engine: append_table(engine, dictionary),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(TURNS):
        for name, way in ways.items():
            engine = Engine([1] * 6, pool_bytes=1 << 28, batch_size=1 << 18)
            started = time.process_time()
            way(engine)
            best[name] = min(best[name], (time.process_time() - started) / ROWS * 1e9)
    for name, ns in best.items():
        print(f"{name:28} {ns:6.1f} ns CPU a row")


if __name__ == "__main__":
    main()
