"""Spark sessions that start fast and listen on the loopback interface alone."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

from pyspark.sql import SparkSession


@contextlib.contextmanager
def local_session(master: str, **more: str) -> Iterator[SparkSession]:
    """A session without web interface; `more`: settings, `__` for a dot."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(master).appName("kafkaprod tests")
    warehouse = tempfile.TemporaryDirectory()
    settings = {
        "spark.sql.warehouse.dir": warehouse.name,
        "spark.local.dir": warehouse.name,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        # A heartbeat that is late on a busy machine shall not count as a lost executor.
        "spark.network.timeout": "1200s",
    } | {name.replace("__", "."): value for name, value in more.items()}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        warehouse.cleanup()
