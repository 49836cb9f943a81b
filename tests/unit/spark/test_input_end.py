"""A task's rows count as whole only if Spark has ended them: streams cut at every byte, read as by Spark's worker."""

from __future__ import annotations

import contextlib
import io
import os
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kafkaprod.marks import looks, steps
from kafkaprod.spark import exactly_once, task
from kafkaprod.spark.input_end import END_OF_STREAM, InputCutError, read_if_shut, whole, worker_input
from kafkaprod.spark.options import TransactionOptions, parse_options
from kafkaprod.spark.plan import WritePlan
from kafkaprod.spark.replay import check_rows
from kafkaprod.spark.write_marks import WriteMark

BATCHES = [pa.record_batch({"value": [f"{batch}-{row}" for row in range(3)]}) for batch in range(3)]


def stream_of(batches: list[pa.RecordBatch]) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, BATCHES[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue() + END_OF_STREAM


WHOLE = stream_of(BATCHES)
ENDED = len(WHOLE) - len(END_OF_STREAM)  # behind Arrow's own end of stream, which pyarrow does not demand


def read(data: bytes) -> tuple[Iterator[pa.RecordBatch], Any]:
    """What Spark's worker passes to a task, and where it comes from."""
    infile = io.BufferedReader(io.BytesIO(data))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(infile)  # as ArrowStreamSerializer.load_stream

    return batches(), infile


def test_pyarrow_takes_a_cut_stream_for_a_whole_one() -> None:
    """Why all this is needed."""
    cuts = [at for at in range(len(WHOLE)) if at < ENDED - 8 and not fails_to_read(WHOLE[:at])]
    assert len(cuts) >= len(BATCHES)


def fails_to_read(data: bytes) -> bool:
    try:
        list(read(data)[0])
    except (pa.ArrowInvalid, OSError):
        return True
    return False


@pytest.mark.parametrize("is_proof_needed", [True, False])
def test_stream_that_is_cut_at_any_byte_is_never_taken_for_whole(is_proof_needed: bool) -> None:
    for at in range(ENDED + 1):
        batches, infile = read(WHOLE[:at])
        with pytest.raises((InputCutError, pa.ArrowInvalid, OSError)):
            list(whole(batches, infile, 4, is_proof_needed=is_proof_needed))


def test_whole_stream_is_passed_on_and_its_end_left_for_the_worker() -> None:
    for at in range(ENDED + 1, len(WHOLE) + 1):  # a buffer may end within the number; Arrow's end was before it
        batches, infile = read(WHOLE[:at])
        assert list(whole(batches, infile, 4, is_proof_needed=True)) == BATCHES
        assert infile.read() == WHOLE[ENDED:at]


def test_empty_partition_ends_well_and_a_cut_before_the_first_batch_does_not() -> None:
    empty = stream_of([])
    batches, infile = read(empty)
    assert list(whole(batches, infile, 4, is_proof_needed=True)) == []
    batches, infile = read(empty[: -len(END_OF_STREAM)])
    with pytest.raises(InputCutError, match="the rows of task 4 were cut off after 0"):
        list(whole(batches, infile, 4, is_proof_needed=True))


def test_something_else_behind_the_rows_is_no_end() -> None:
    batches, infile = read(WHOLE[:ENDED] + b"\xff\xff\xff\xfe")
    with pytest.raises(InputCutError, match=r"behind the 9 rows of task 4 are the bytes fffffffe, .* fffffffc"):
        list(whole(batches, infile, 4, is_proof_needed=True))


def test_reset_connection_is_no_end() -> None:
    class Reset:
        def peek(self, size: int) -> bytes:
            raise ConnectionResetError

        def fileno(self) -> int:
            raise OSError

    with pytest.raises(InputCutError, match="cut off after 9") as caught:
        list(whole(iter(BATCHES), Reset(), 4, is_proof_needed=False))
    assert isinstance(caught.value.__cause__, ConnectionResetError)


def test_unknown_worker_is_refused_before_the_first_row_where_proof_is_needed() -> None:
    with pytest.raises(InputCutError, match="Nothing was written"):
        next(whole(iter(BATCHES), None, 4, is_proof_needed=True))
    assert list(whole(iter(BATCHES), None, 4, is_proof_needed=False)) == BATCHES


@pytest.fixture
def socket_input() -> Iterator[tuple[socket.socket, Any]]:
    """Spark's end of the socket to a worker, and the stream that the worker reads."""
    spark, worker = socket.socketpair()
    infile = os.fdopen(os.dup(worker.fileno()), "rb", 65536)  # as pyspark.daemon.worker
    worker.close()
    yield spark, infile
    spark.close()
    infile.close()


@pytest.mark.parametrize("end", [ENDED, len(WHOLE)], ids=["cut off", "whole"])
def test_rows_are_read_to_their_end_at_once_when_spark_sends_no_more(
    socket_input: tuple[socket.socket, Any], end: int
) -> None:
    spark, infile = socket_input
    spark.sendall(WHOLE[:end])
    batches = whole(pa.ipc.open_stream(infile), infile, 4, is_proof_needed=True)
    first = next(batches)
    assert read_if_shut(batches, infile) is batches  # more may come
    spark.shutdown(socket.SHUT_WR)
    if end == ENDED:
        with pytest.raises(InputCutError, match="cut off after 9"):
            read_if_shut(batches, infile)
    else:
        assert [first, *read_if_shut(batches, infile)] == BATCHES


def test_rows_are_left_where_they_are_if_nothing_shows_that_spark_sends_no_more() -> None:
    for source in (None, io.BufferedReader(io.BytesIO())):
        batches = iter(BATCHES)
        assert read_if_shut(batches, source) is batches


class _Spec:
    name = "pyspark.worker"


@pytest.mark.parametrize("name", ["pyspark.worker", "__main__"])
def test_input_of_a_worker_is_found_in_the_calls_that_led_to_the_task(name: str) -> None:
    scope: dict[str, Any] = {"__name__": name, "__spec__": _Spec, "task": worker_input}
    exec("def process():\n    return task()\ndef main(infile, outfile):\n    return process()\n", scope)
    infile = io.BufferedReader(io.BytesIO())
    assert scope["main"](infile, None) is infile
    assert scope["main"](object(), None) is None
    assert worker_input() is None


# -- a task in a transaction -------------------------------------------------------------------------------------------

PLAN_OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "delivery": "transactional", "write.id": "w"}


class _Transactions:
    """A producer and a cluster that note what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> _Transactions:
    noted = _Transactions()

    @contextlib.contextmanager
    def producer(_: object) -> Iterator[_Transactions]:
        try:
            yield noted
        except BaseException:
            noted.calls.append("abort")
            raise

    class Writer:
        def __init__(self, *_: object) -> None: ...

        def run(self, batches: Iterator[pa.RecordBatch]) -> None:
            noted.calls.extend("rows" for _ in batches)

    monkeypatch.setattr(exactly_once, "ClusterClient", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(exactly_once, "_task_producer", producer)
    monkeypatch.setattr(exactly_once, "TaskWriter", Writer)
    monkeypatch.setattr(exactly_once, "read_mark", lambda *_: None)
    monkeypatch.setattr(exactly_once, "retry_count", lambda _: 0)
    monkeypatch.setattr(steps, "_coordinator_of", lambda *_: 0)

    def guard(*_: object) -> looks.CommittedOffsets:
        noted.calls.append("guard")
        return {}

    monkeypatch.setattr(looks, "offsets_before", guard)
    return noted


class _Context:
    def partitionId(self) -> int:
        return 4

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> None:
        return None


@pytest.mark.parametrize("at", [ENDED, len(WHOLE)], ids=["cut off", "ended"])
def test_mark_and_commit_follow_the_end_of_the_rows_alone(
    transactions: _Transactions, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    batches, infile = read(WHOLE[:at])
    for module in (task, exactly_once):
        monkeypatch.setattr(module, "TaskContext", type("Contexts", (), {"get": staticmethod(_Context)}))
    monkeypatch.setattr(task, "worker_input", lambda: infile)
    options = parse_options(PLAN_OPTIONS)
    plan = WritePlan(options, 0, -1, -1, -1, -1, -1, None, "w", "x")
    begun = ["init_transactions", "begin_transaction", "rows", "rows", "rows"]
    if at == ENDED:
        with pytest.raises(InputCutError):
            task.write_task(plan, batches)
        assert transactions.calls == [*begun, "abort"]
    else:
        task.write_task(plan, batches)
        assert transactions.calls == [*begun, "send_offsets_to_transaction", "guard", "commit_transaction"]


def test_task_that_has_failed_already_fences_no_later_attempt(
    transactions: _Transactions, monkeypatch: pytest.MonkeyPatch, socket_input: tuple[socket.socket, Any]
) -> None:
    spark, infile = socket_input
    for module in (task, exactly_once):
        monkeypatch.setattr(module, "TaskContext", type("Contexts", (), {"get": staticmethod(_Context)}))
    monkeypatch.setattr(task, "worker_input", lambda: infile)
    spark.sendall(WHOLE[:ENDED])
    spark.close()
    plan = WritePlan(parse_options(PLAN_OPTIONS), 0, -1, -1, -1, -1, -1, None, "w", "x")
    with pytest.raises(InputCutError):
        task.write_task(plan, pa.ipc.open_stream(infile))
    assert transactions.calls == ["abort"]


def test_cut_repetition_is_not_taken_for_other_rows() -> None:
    batches, infile = read(WHOLE[:ENDED])
    options = TransactionOptions("p", "t", 1000, "count")
    with pytest.raises(InputCutError):
        check_rows(
            options, WriteMark(0, 20, None, 0, "", "x", ""), whole(batches, infile, 4, is_proof_needed=True), "task 4"
        )
