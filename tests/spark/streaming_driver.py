"""A driver that streams a directory into a topic until there is nothing more; made to be killed and started again.

    python -m tests.spark.streaming_driver localhost:9092 my-topic INPUT CHECKPOINT format|foreach_batch [transactional]

A few files a micro-batch, headers that tell repeated rows, and a buffer so small that rows reach the topic bit by bit.
"""

import os
import sys

from pyspark.sql import SparkSession

from kafkaprod.spark import foreach_batch
from tests.spark.stalls import show_stacks_on_signal

FILES_A_BATCH = 4
SMALL_BUFFER = {
    "kafka.batch.size": "16384",
    "kafka.buffer.memory": "131072",
    "kafka.max.request.size": "65536",
}


def main() -> None:
    servers, topic, source, checkpoint, way, *delivery = sys.argv[1:]
    show_stacks_on_signal()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        .getOrCreate()
    )
    options = SMALL_BUFFER | {"kafka.bootstrap.servers": servers, "topic": topic, "dedup.headers": "true"}
    if delivery:
        options["delivery"] = delivery[0]
    rows = spark.readStream.option("maxFilesPerTrigger", str(FILES_A_BATCH)).text(source)
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    if way == "format":
        query = writer.format("kafkaprod").options(**options).start()
    else:
        query = writer.foreachBatch(foreach_batch(options)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
