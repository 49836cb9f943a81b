"""Streams as tests run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from kafkaprod.spark import foreach_batch
from tests.spark.stalls import await_end
from tests.spark.ways import WAYS


def start_stream(df: DataFrame, checkpoint: Path, options: dict[str, str], by_batch: bool) -> Any:
    """Start a stream of all that is there now, by `foreachBatch` or, if this PySpark has it, the data source."""
    writer = df.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    if by_batch or "stream" not in WAYS:
        return writer.foreachBatch(foreach_batch(options)).start()
    return writer.format("kafkaprod").options(**options).start()


def run_stream(df: DataFrame, checkpoint: Path, options: dict[str, str], by_batch: bool) -> None:
    """Run a stream of all that is there now to its end."""
    await_end(start_stream(df, checkpoint, options, by_batch), options["kafka.bootstrap.servers"])
