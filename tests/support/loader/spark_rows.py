"""Read files with Spark: `python spark_rows.py [JAR ...]`, see `reading_program`.

One session reads all files. The answer to a path and its format is an Arrow stream of all rows, or an error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # which takes longer than a small file
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.orc.mergeSchema": "true",
    "spark.sql.caseSensitive": "true",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# Every field of a row is text, as the loader has it; rows of another length are errors.
_CSV = {
    "header": "true",
    "multiLine": "true",
    "quote": '"',
    "escape": '"',
    "nullValue": "\x01",
    "emptyValue": "",
    "mode": "FAILFAST",
    "maxCharsPerColumn": "-1",
}


@cache
def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    settings = _SETTINGS | {"spark.jars": ",".join(sys.argv[1:])}
    if any("delta" in name for name in sys.argv[1:]):
        settings |= _DELTA
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def rows_of(request: Mapping[str, str]) -> bytes | str:
    """Read a file or a folder.

    Args:
        request: Its path and its format.
    """
    import pyarrow as pa

    try:
        table = _frame(_session().read, request["path"], request["format"]).toArrow()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _frame(reader: DataFrameReader, path: str, kind: str) -> Any:
    path = f"file://{path}"
    for character in "\\{}[]*?":  # of patterns, which Spark takes paths for
        path = path.replace(character, f"\\{character}")
    if kind in ("csv", "tsv"):
        return reader.options(**_CSV, sep="\t" if kind == "tsv" else ",").csv(path)
    if kind in ("json", "jsonl"):
        return reader.options(mode="FAILFAST", multiLine=str(kind == "json")).json(path)
    return reader.format(kind).load(path)


if __name__ == "__main__":
    from reading_program import answer  # which is beside this file

    answer(rows_of)
