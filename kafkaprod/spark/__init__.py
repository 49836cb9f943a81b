"""Apache Spark: write DataFrames to Kafka and read them back, without a jar.

frames          write(df, ...), foreach_batch(...)
shipping        the package, sent to workers that lack it
session         settings and data source of a session
source          the data source `kafkaprod`
preflight       the topic, checked on the driver
reader          topics back into DataFrames
range_reader    reads one range of offsets to its end
ranges          which offsets of which partitions a read covers
pushdown        filters that the reader applies itself
reader_options  the options of the reader and their errors
task            the part on executors
mark_checks     the marks of earlier attempts with other partitions
exactly_once    a task as one transaction
input_end       whether a task has all of its rows, or they were cut off
pool            one producer a worker
replay          are repeated rows the same
worker          what a Python worker does once
write_marks     which micro-batch is written, and whose
writing         rows through a producer
deduplication   headers that identify rows
report          counts and offsets
rows            record batches to the producer
plan            columns and their errors
options         options of the sink and their errors
avro            values as Avro records
streams         which stream a write belongs to
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
