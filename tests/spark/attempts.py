"""Attempts at a task as threads of a test: two of them, and other streams, cannot be had in one session."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafkaprod.spark import exactly_once, task
from kafkaprod.spark.input_end import END_OF_STREAM

VALUE = StructType([StructField("value", StringType())])


class Become(Protocol):
    """Makes the calling thread an attempt at a task."""

    def __call__(
        self, attempt: int, batch: int | None, *, stream: str | None = "q", partition: int = 0, run: str = ""
    ) -> None: ...


class _Context:
    """What a task sees of Spark."""

    def __init__(self, attempt: int, partition: int, properties: dict[str, str | None]) -> None:
        self._attempt = attempt
        self._partition = partition
        self._properties = properties

    def partitionId(self) -> int:
        return self._partition

    def attemptNumber(self) -> int:
        return self._attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Become:
    """Make the calling thread the attempt of a number at a task of a micro-batch; None: of a batch."""
    running = threading.local()

    class Contexts:
        @staticmethod
        def get() -> _Context:
            return running.context  # type: ignore[no-any-return]

    def become(attempt: int, batch: int | None, *, stream: str | None = "q", partition: int = 0, run: str = "") -> None:
        properties = {
            "sql.streaming.queryId": None if batch is None else stream,
            "streaming.sql.batchId": None if batch is None else str(batch),
            "spark.jobGroup.id": run,
        }
        running.context = _Context(attempt, partition, properties)

    for module in (exactly_once, task):
        monkeypatch.setattr(module, "TaskContext", Contexts)
    # Behind the rows there is what Spark writes there.
    monkeypatch.setattr(task, "worker_input", lambda: io.BufferedReader(io.BytesIO(END_OF_STREAM)))
    return become


def batches_of(
    values: list[str], sign: threading.Event | None = None, wait: threading.Event | None = None
) -> Iterator[pa.RecordBatch]:
    """Two batches; after the first one a sign is given and another waited for."""
    half = len(values) // 2
    yield pa.RecordBatch.from_pydict({"value": values[:half]})
    if sign is not None and wait is not None:
        sign.set()
        assert wait.wait(60)
    yield pa.RecordBatch.from_pydict({"value": values[half:]})
