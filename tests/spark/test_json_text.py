"""Rows as JSON are byte for byte what Spark's to_json writes, on generated data of every type both have."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafkaprod._core.columns.arrow import ArrowStream
from kafkaprod._core.text.json_rows import JsonEncoder

pytestmark = pytest.mark.spark("4.0")  # toArrow
ROWS = 2000
SEED = 7
Maker = Callable[[random.Random], Any]


def text(rng: random.Random) -> str:
    length = rng.randrange(40)
    if rng.random() < 0.5:
        return "".join(chr(rng.randrange(0x80)) for _ in range(length))
    ranges = [(0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000), (0x2028, 0x202A)]
    return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(length))


def integer(bits: int) -> Maker:
    return lambda rng: rng.getrandbits(rng.randrange(1, bits + 1)) - (1 << (bits - 1))


def microseconds(rng: random.Random) -> int:
    anywhere = rng.randrange(-62_135_596_800 * 10**6, 253_402_300_799 * 10**6)
    return rng.choice([anywhere, rng.randrange(2 * 10**15), rng.randrange(-(10**9), 10**9)])


def number(places: int, scale: int) -> Maker:
    return lambda rng: decimal.Decimal(
        rng.randrange(-(10 ** rng.randrange(1, places)), 10 ** rng.randrange(1, places))
    ).scaleb(-scale)


def maybe(make: Maker) -> Maker:
    return lambda rng: None if rng.random() < 0.15 else make(rng)


def several(make: Maker) -> Maker:
    return lambda rng: [make(rng) for _ in range(rng.randrange(4))]


def record(rng: random.Random) -> dict[str, Any]:
    return {
        "x": maybe(integer(32))(rng),
        "y": maybe(text)(rng),
        "z": maybe(lambda rng: {"q": maybe(integer(64))(rng)})(rng),
    }


RECORD = pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.struct([("q", pa.int64())]))])
TYPES: dict[str, tuple[pa.DataType, Maker]] = {
    'na"me\\\u00e9\n': (pa.string(), text),
    "byte": (pa.int8(), integer(8)),
    "short": (pa.int16(), integer(16)),
    "int": (pa.int32(), integer(32)),
    "long": (pa.int64(), integer(64)),
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "timestamp": (pa.timestamp("us", tz="UTC"), microseconds),
    "timestamp_ntz": (pa.timestamp("us"), microseconds),
    "date": (pa.date32(), lambda rng: datetime.date.fromordinal(rng.randrange(1, 3_652_060))),
    "binary": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(20))),
    "decimal": (pa.decimal128(38, 10), number(38, 10)),
    "price": (pa.decimal128(9, 2), number(9, 2)),
    "whole": (pa.decimal128(20, 0), number(20, 0)),
    "array": (pa.list_(pa.string()), several(maybe(text))),
    "struct": (RECORD, record),
    "structs": (pa.list_(RECORD), several(maybe(record))),
    "map": (pa.map_(pa.string(), pa.int32()), several(lambda rng: (text(rng), maybe(integer(32))(rng)))),
    "int map": (pa.map_(pa.int32(), pa.string()), several(lambda rng: (integer(32)(rng), maybe(text)(rng)))),
}


def ours(table: pa.Table) -> list[str]:
    out = []
    for batch in ArrowStream(table):
        column = JsonEncoder(batch, range(len(batch.fields))).encode(0, 1 << 30)
        out += [(column[i] or b"").decode() for i in range(batch.row_count)]
    return out


def both(spark: SparkSession, table: pa.Table, directory: Path) -> tuple[list[str], list[str]]:
    """Spark's text and ours, of the rows as Spark reads and hands them over."""
    pq.write_table(table, directory / "rows.parquet")
    frame = spark.read.parquet(str(directory / "rows.parquet")).coalesce(1)
    names = [F.col(f"`{name}`") for name in frame.columns]
    theirs = frame.select(F.to_json(F.struct(*names)).alias("json")).toArrow()["json"].to_pylist()
    return theirs, ours(frame.toArrow())


def test_rows_have_the_text_of_to_json(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    columns = {name: pa.array([maybe(make)(rng) for _ in range(ROWS)], kind) for name, (kind, make) in TYPES.items()}
    theirs, mine = both(spark, pa.table(columns), tmp_path)
    assert len(mine) == ROWS
    assert [pair for pair in zip(theirs, mine, strict=True) if pair[0] != pair[1]][:3] == []


def some_double(rng: random.Random) -> float:
    special = [0.0, -0.0, 1.0, 1e7, 9999999.0, 0.001, 0.00099, math.nan, math.inf, -math.inf, 5e-324, 1e-323]
    bits: float = struct.unpack("d", struct.pack("Q", rng.getrandbits(64)))[0]
    return rng.choice([bits, rng.choice(special), round(rng.uniform(-1e4, 1e4), rng.randrange(6)), rng.gauss(0, 1)])


@pytest.mark.parametrize("width", [64, 32])
def test_floats_have_java_s_text_or_a_shorter_one_of_the_same_number(
    spark: SparkSession, tmp_path: Path, width: int
) -> None:
    """Java before 19 prints a digit too many for some floats (JDK-4511638)."""
    rng = random.Random(SEED)
    kind = np.float64 if width == 64 else np.float32
    with np.errstate(over="ignore"):
        numbers = np.array([some_double(rng) for _ in range(ROWS)]).astype(kind)
    theirs, mine = both(spark, pa.table({"v": pa.array(numbers)}), tmp_path)
    differing = [(a, b) for a, b in zip(theirs, mine, strict=True) if a != b]
    assert len(differing) < ROWS / 5
    for java, text_here in differing:
        assert len(text_here) <= len(java)
        assert kind(json.loads(text_here)["v"]) == kind(json.loads(java)["v"])
