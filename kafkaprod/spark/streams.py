"""Which stream a write belongs to: what its tasks see, and what `foreach_batch` finds out over Spark Connect.

A stream has an id, which its checkpoint keeps, and a run, which each start makes. Micro-batch numbers count within one
id: with a new checkpoint they begin again at 0, for other rows. So whatever says that a micro-batch is written names
the stream, too, also where `write.id` names the write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark import TaskContext

from kafkaprod.errors import ConfigError

_WORKER: Final = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A stream that was started.

    Attributes:
        id: The same for all starts from one checkpoint.
        run: The id of this start.
    """

    id: str
    run: str

    @classmethod
    def of_task(cls, context: TaskContext) -> Self | None:
        """Return the stream of the running task; None: it belongs to none, or Spark does not say."""
        stream = context.getLocalProperty("sql.streaming.queryId")
        return cls(stream, context.getLocalProperty("spark.jobGroup.id") or "") if stream else None


def stream_over_connect(df: Any, name: str) -> StreamRun:
    """Return the stream whose micro-batch a function of `foreachBatch` was given, over Spark Connect.

    Spark passes a number and a frame alone; the stream is among those of its session that are active.

    Args:
        df: The frame of the micro-batch.
        name: The option write.id, which is also the name of the stream if several are active.

    Raises:
        ConfigError: It is not known which of them it is.
    """
    active: list[Any] = []
    for session in _sessions(df):
        active = session.streams.active
        if active:
            break
    chosen = active if len(active) == 1 else [query for query in active if query.name == name]
    if len(chosen) != 1:
        raise ConfigError(
            f"over Spark Connect foreach_batch() cannot know which of {len(active)} active streams of this session it "
            f"writes for, so a new checkpoint would be taken for a repetition: give the stream the name of its "
            f"write.id, writeStream.queryName({name!r}), or a session of its own"
        )
    return StreamRun(str(chosen[0].id), str(chosen[0].runId))


def _sessions(df: Any) -> Iterator[Any]:
    """Yield the sessions that may have the stream: Spark 4.3 passes a frame of a copy, which has no streams."""
    yield df.sparkSession
    frame = sys._getframe()
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if frame.f_code.co_name == "main" and getattr(spec, "name", "") == _WORKER:
            if "spark_connect_session" in frame.f_locals:
                yield frame.f_locals["spark_connect_session"]
            return
        frame = frame.f_back  # type: ignore[assignment]
