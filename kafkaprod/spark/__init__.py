"""Apache Spark: DataFrames into Kafka and back, by pip alone.

source.py    the data source `kafkaprod`        frames.py    write(df, ...), foreach_batch(...)
options.py   options and their errors           plan.py      columns and their errors
task.py      what runs on executors             rows.py      record batches to the producer
pool.py      one producer a worker              report.py    what was written
reader.py    topics back into DataFrames        deduplication.py  headers that tell repeated rows
preflight.py the topic, seen from the driver    session.py   settings and data source of a session
pushdown.py  filters for the reader             reader_options.py  its options and their errors
shipping.py  the package, sent to workers that lack it
"""

from kafkaprod.spark.frames import foreach_batch, write
from kafkaprod.spark.report import OffsetRange, WriteReport
from kafkaprod.spark.session import register, tune
from kafkaprod.spark.shipping import ship

__all__ = ["OffsetRange", "WriteReport", "foreach_batch", "register", "ship", "tune", "write"]
