"""What a Spark session needs for a sink in Python: its Arrow settings, and the registered data source."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from kafkaprod.errors import ConfigError

# With a byte limit Spark measures the whole batch again for every row; small batches let JVM and Python overlap.
_SETTINGS: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}


def tune(spark: SparkSession) -> None:
    """Set the session's Arrow options to what makes writing fastest: 1.1 to 2 times, by the number of columns.

    They hold for everything in the session that goes through Arrow. Rows may be up to 1 MB then.
    """
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)


def register(spark: SparkSession) -> None:
    """Register `format("kafkaprod")` with a session.

    Spark finds an installed package by itself. Call this where it does not (`DATA_SOURCE_NOT_FOUND`): after an editable
    installation by an import hook, or where the package is on the path of the program only.

    Raises:
        ConfigError: Spark is older than 4.0, which has no data sources in Python: use write() and foreach_batch().
    """
    if not hasattr(spark, "dataSource"):
        raise ConfigError(
            "format('kafkaprod') needs Spark 4.0 or later: use kafkaprod.spark.write() and foreach_batch()"
        )
    from kafkaprod.spark.source import KafkaProdSource

    spark.dataSource.register(KafkaProdSource)
