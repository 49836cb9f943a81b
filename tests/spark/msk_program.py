"""A program that writes by SQL and by a stream, with options for a cluster that wants AWS_MSK_IAM.

python -m tests.spark.msk_program DIRECTORY OPTIONS    # OPTIONS: a JSON object, of which `topic` is one
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kafkaprod.spark import register
from tests.spark.sessions import local_session


def main(directory: Path, options: dict[str, str]) -> None:
    """Write ten rows each way."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with local_session("local[2]") as spark:
        register(spark)
        shown = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
        spark.sql(f"create temporary view sink using kafkaprod options ({shown})")
        spark.sql("insert into sink (value) select cast(concat('sql ', id) as binary) from range(10)")
        spark.range(10).selectExpr("concat('stream ', id) as value").write.parquet(str(directory / "in"))
        query = (
            spark.readStream.schema("value string")
            .parquet(str(directory / "in"))
            .writeStream.format("kafkaprod")
            .options(**options)
            .option("checkpointLocation", str(directory / "state"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200), query.lastProgress


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
