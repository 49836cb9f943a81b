"""Apache Spark: write DataFrames to Kafka and read them back, without a jar.

source.py    the data source `kafkaprod`        frames.py    write(df, ...), foreach_batch(...)
options.py   options and their errors           plan.py      columns and their errors
task.py      the part on executors              rows.py      record batches to the producer
exactly_once.py  a task as one transaction  write_marks.py  which micro-batch is written
writing.py   rows through a producer           replay.py    are repeated rows the same
input_end.py  did the rows end, or were they cut off
pool.py      one producer a worker              report.py    counts and offsets
reader.py    topics back into DataFrames        deduplication.py  headers that identify rows
preflight.py the topic, checked on the driver    session.py   settings and data source of a session
pushdown.py  filters for the reader             reader_options.py  its options and their errors
shipping.py  the package, sent to workers that lack it
"""

try:
    import pyspark as _  # noqa: F401
except ImportError as error:
    raise ImportError("kafkaprod.spark needs PySpark: pip install 'kafkaprod[spark]'") from error

from kafkaprod.spark.frames import foreach_batch, write
from kafkaprod.spark.report import OffsetRange, WriteReport
from kafkaprod.spark.session import register, tune
from kafkaprod.spark.shipping import ship

__all__ = ["OffsetRange", "WriteReport", "foreach_batch", "register", "ship", "tune", "write"]
