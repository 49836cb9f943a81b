"""Streams as tests run them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from kafkaprod.spark import foreach_batch


def run_stream(df: DataFrame, checkpoint: Path, options: dict[str, str], by_batch: bool) -> None:
    """Run a stream of all that is there now, by the data source or by `foreachBatch`."""
    writer = df.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    if by_batch:
        query = writer.foreachBatch(foreach_batch(options)).start()
    else:
        query = writer.format("kafkaprod").options(**options).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
