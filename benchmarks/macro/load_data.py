"""Flights, made up, in every format that can be loaded: `python -m benchmarks.macro.load_data DIRECTORY ROWS`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import polars as pl


def make_files(directory: Path, rows: int) -> None:
    """Write the files."""
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "flight": np.arange(rows),
            "carrier": rng.choice(["AA", "B6", "DL", "EV", "UA", "WN"], rows),
            "origin": rng.choice(["EWR", "JFK", "LGA"], rows),
            "delay": rng.integers(-20, 180, rows),
            "distance": rng.random(rows).round(3) * 5000,
            "tail": [f"N{number:05d}" for number in rng.integers(0, 99_999, rows)],
        }
    )
    frame.write_csv(directory / "flights.csv")
    frame.write_ndjson(directory / "flights.jsonl")
    frame.write_parquet(directory / "flights.parquet")
    frame.write_ipc(directory / "flights.arrow", compression="uncompressed")
    shutil.copy(directory / "flights.jsonl", directory / "flights.txt")
    lines = (directory / "flights.jsonl").read_bytes().splitlines()
    (directory / "flights.json").write_bytes(b"[" + b",\n".join(lines) + b"]")


if __name__ == "__main__":
    make_files(Path(sys.argv[1]), int(sys.argv[2]))
