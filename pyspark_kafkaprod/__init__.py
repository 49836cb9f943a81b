"""Lets Spark find the data source `kafkaprod` without registration: it looks into modules named `pyspark_*`.

Spark imports every such module for any look-up of a source, so this one must never fail: without PySpark 4 or PyArrow
it has no `DefaultSource` and is passed over.
"""

import contextlib

with contextlib.suppress(Exception):
    from kafkaprod.spark.source import KafkaProdSource as DefaultSource

    __all__ = ["DefaultSource"]
