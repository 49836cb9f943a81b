"""Whether a task's rows reached their end, or were cut off.

If a stage before the sink fails, Spark shuts the socket to the worker. The Arrow stream then stops behind a batch, and
pyarrow takes that for its end. The difference follows the stream, on the worker's own input:

    all rows were written    Arrow's end of stream (FF FF FF FF 00 00 00 00), then the number END_OF_STREAM (-4)
    anything else            nothing: the socket is at its end, or reset

Spark writes that number when its iterator of rows has no more, and on no other way; the worker reads it after the task.
So it is looked at here, and left there. Source: pyspark.worker.main, BasePythonRunner.Writer (3.5 to 4.3).
"""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import pyarrow as pa

from kafkaprod.errors import KafkaError

END_OF_STREAM: Final = (-4).to_bytes(4, "big", signed=True)
_WORKER: Final = "pyspark.worker"


class InputCutError(KafkaError):
    """The rows of a task stopped before their end, or it cannot be known; nothing of it may be taken for whole."""


class WorkerInput(Protocol):
    """What a worker reads from Spark; a buffered stream."""

    def peek(self, size: int, /) -> bytes:
        """Return bytes that the next reads will return, at least one but at the end of the stream."""

    def fileno(self) -> int:
        """Return the descriptor of the socket. Raises OSError or ValueError if there is none."""


def worker_input() -> WorkerInput | None:
    """Return the stream from Spark to this worker; None: this thread runs no task of a worker that is known here."""
    frame = sys._getframe()
    while frame is not None:
        spec = frame.f_globals.get("__spec__")  # `__name__` is `__main__` where Spark forks no workers
        if frame.f_code.co_name == "main" and getattr(spec, "name", "") == _WORKER:
            stream = frame.f_locals.get("infile")
            return stream if hasattr(stream, "peek") else None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def whole(
    batches: Iterable[pa.RecordBatch], source: WorkerInput | None, task: int, *, is_proof_needed: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task; end only if Spark has ended them.

    Args:
        batches: As Spark passes them.
        source: Where they come from; None: unknown.
        task: Its partition, for the error.
        is_proof_needed: Refuse a task whose end cannot be seen, before its first batch. False: Spark alone fails it.

    Raises:
        InputCutError: They were cut off.
    """
    if source is None and is_proof_needed:
        raise InputCutError(
            f"task {task} cannot see how its rows end: delivery=transactional knows the Python workers of Spark 3.5 to "
            "4.3, and this is another one. Nothing was written. Use delivery=at_least_once"
        )
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if source is not None:
        _check_end(source, task, rows)


def read_if_shut(batches: Iterator[pa.RecordBatch], source: WorkerInput | None) -> Iterator[pa.RecordBatch]:
    """Return the batches; if Spark sends no more, read them all first, so that cut rows end the attempt.

    A worker on a busy machine may look at its first batch when the attempt has failed, and the next one has begun. If
    it fenced that one, the task would fail once more. What is read here is in the system's buffers already.

    Args:
        batches: From `whole`.
        source: Where they come from; None: unknown.

    Raises:
        InputCutError: They were cut off.
    """
    return iter(list(batches)) if _is_shut(source) else batches


def _is_shut(source: WorkerInput | None) -> bool:
    """Whether the other end will send nothing more, though not all may be read; False where that cannot be seen."""
    event = getattr(select, "POLLRDHUP", None)  # Linux
    if source is None or event is None:
        return False
    poller = select.poll()
    try:
        poller.register(source.fileno(), event)
    except (OSError, ValueError):
        return False
    return bool(poller.poll(0))


def _check_end(source: WorkerInput, task: int, rows: int) -> None:
    cause: OSError | None = None
    try:
        after = source.peek(len(END_OF_STREAM))[: len(END_OF_STREAM)]  # fewer at the end of a buffer: still the end
    except OSError as error:
        after, cause = b"", error
    if not after:
        raise InputCutError(
            f"the rows of task {task} were cut off after {rows}: a stage before this write failed, or Spark ended the "
            "task. They are not taken for the whole task; Spark's own error says why, and Spark runs the task again"
        ) from cause
    if not END_OF_STREAM.startswith(after):
        raise InputCutError(
            f"behind the {rows} rows of task {task} are the bytes {after.hex()}, not Spark's end of stream "
            f"{END_OF_STREAM.hex()}: they are not taken for the whole task. Is this a worker of Spark 3.5 to 4.3?"
        )
