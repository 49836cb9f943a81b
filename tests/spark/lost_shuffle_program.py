"""Writes rows through a shuffle whose files are lost.

python -m tests.spark.lost_shuffle_program SERVERS TOPIC ROWS DIRECTORY

A program of its own: Spark takes the executor that lost files for dead, and in a local session that is the driver. From
then on it cannot find results of more than a MiB there, and each heartbeat fails, as it looks for a scheduler that
local mode does not have: after 60 of them, ten minutes, the JVM exits (spark.executor.heartbeat.maxFailures).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kafkaprod.spark import write
from tests.spark.failing_stages import SETTINGS, loses_shuffle, numbered_rows
from tests.spark.sessions import local_session


def main() -> None:
    """Write once; exit with an error if a file was not lost."""
    servers, topic, rows, directory = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with local_session("local[2,4]") as spark:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        df = loses_shuffle(spark, Path(directory))(numbered_rows(spark, int(rows), tasks=8))
        write(
            df,
            {
                "kafka.bootstrap.servers": servers,
                "topic": topic,
                "write.id": topic,
                "delivery": "transactional",
                "verify.replay": "content",
            },
        )
    assert (Path(directory) / "lost").exists(), "no file was lost"


if __name__ == "__main__":
    main()
