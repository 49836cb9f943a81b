"""A task whose rows and write mark stand or fall together: `delivery=transactional`.

1. Look for the mark without fencing any attempt. If the micro-batch is written, return.
2. init_transactions: fences every earlier attempt at this partition, and ends what it left open. If Spark has shut
   the input by then, the rows are read to their end first: an attempt that has failed fences no later one.
3. Look again. What is seen now holds: no earlier attempt can commit any more.
4. One transaction: the rows, the mark, the commit; the last two only when Spark has ended the rows (`input_end.py`).
   Between them the guard: the coordinator that has taken the mark says which one was committed before it.
5. If another attempt has fenced this one, or the commit's outcome is unknown: wait for the mark.

Two attempts at a micro-batch cannot both commit: when the later one looks, the earlier one is decided. `write()`
returns only after a commit was acknowledged or a mark seen, so no row is left out.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from kafkaprod.admin.client import ClusterClient
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import Engine
from kafkaprod.errors import BrokerError, ConfigError, KafkaError
from kafkaprod.marks.steps import commit, send_mark
from kafkaprod.producer import Producer, start_producer
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.spark.input_end import InputCutError, WorkerInput, read_if_shut
from kafkaprod.spark.options import TransactionOptions
from kafkaprod.spark.plan import WritePlan
from kafkaprod.spark.pool import transactional_options
from kafkaprod.spark.replay import RowCount, check_rows
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.streams import StreamRun
from kafkaprod.spark.write_marks import MarkPlace, WriteMark, read_mark
from kafkaprod.spark.writing import TaskWriter, retry_count

GLANCE_MS: Final = 1_000  # an open transaction that holds a mark for longer is fenced
SETTLED_MS: Final = 30_000  # after init a mark is held only until its decided transaction is applied
_POLL_S: Final = 0.2
_ABORT_S: Final = 10.0  # after that the transaction is left to the next attempt, or to its timeout

logger = logging.getLogger("kafkaprod.spark")


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Which part of which write a task is; the same for every attempt.

    Attributes:
        query: Id of the stream, or the option write.id.
        batch: Micro-batch; 0 for a write that is no stream.
        partition: The partition of the DataFrame.
        run: The id of this start of the stream; "" for a write that is no stream.
        stream: The id of the stream; "" for a write that is no stream.
    """

    query: str
    batch: int
    partition: int
    run: str
    stream: str

    @classmethod
    def of_task(cls, plan: WritePlan, context: TaskContext) -> TaskPlace:
        """Return the place of the running task.

        Raises:
            ConfigError: It belongs to no stream and has no write.id.
        """
        stream = plan.stream or StreamRun.of_task(context) or StreamRun("", "")
        query = plan.options.write_id or stream.id
        if not query:
            raise ConfigError(no_write_id())
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(query, int(batch or 0), context.partitionId(), stream.run, stream.id)

    def at(self, partition: int) -> TaskPlace:
        """Return the place of another task of the same write."""
        return replace(self, partition=partition)

    def check_owner(self, mark: WriteMark) -> None:
        """Refuse a mark that does not say whether the rows of this task are written.

        Raises:
            ConfigError: Another stream, or a write that is no stream, has the same write.id.
        """
        is_named_by_stream = mark.stream is None and self.query == self.stream
        if mark.stream == self.stream or is_named_by_stream:
            return
        cure = "Give this one a write.id of its own: its rows are then written, whatever is there"
        if mark.stream is not None:
            raise ConfigError(
                f"write.id {self.query!r} is that of {_owner(mark.stream)}, which has written micro-batch {mark.batch} "
                f"of partition {self.partition}, and this is {_owner(self.stream)}: its micro-batches have the same "
                f"numbers for other rows. A stream keeps its id as long as it has the same checkpoint. {cure}"
            )
        if bool(mark.run) == bool(self.stream) and (not self.stream or mark.batch < self.batch):
            return
        raise ConfigError(
            f"write.id {self.query!r} has a write mark of kafkaprod 0.2 for micro-batch {mark.batch} of partition "
            f"{self.partition}, which does not say which stream wrote it, and this is micro-batch {self.batch} of "
            f"{_owner(self.stream)}: it cannot be known whether these rows are written. Let kafkaprod 0.2 complete a "
            f"micro-batch that it has begun. {cure}"
        )

    def __str__(self) -> str:
        return f"task {self.partition} of micro-batch {self.batch} of {self.query}"


def _owner(stream: str) -> str:
    return f"stream {stream}" if stream else "a write that is no stream"


def no_write_id() -> str:
    """Return why a write that is no stream needs the option."""
    return (
        "delivery=transactional needs the option write.id for a batch: a name of this write, by which a repetition "
        "finds what is already written. A stream has an id of its own"
    )


def write_exactly_once(
    plan: WritePlan,
    options: TransactionOptions,
    batches: Iterator[pa.RecordBatch],
    source: WorkerInput | None,
    report: WriteReport,
) -> None:
    """Write a task's rows, unless an attempt has done so; see the module.

    Args:
        plan: The plan of the write.
        options: Its transactions.
        batches: The rows.
        source: Where they come from; None: unknown.
        report: Filled in.

    Raises:
        ReplayError: An earlier attempt has written other rows.
        InputCutError: The rows were cut off; nothing is committed.
        ConfigError: Brokers, rights or options do not allow it; nothing was written.
        KafkaError: Nothing was written, as far as is known. Spark runs the task again.
    """
    context = TaskContext.get()
    if context is None:
        raise ConfigError("delivery=transactional runs in Spark's tasks alone")
    place = TaskPlace.of_task(plan, context)
    report.query, report.batch, report.stream = place.query, place.batch, place.stream
    _Attempt(plan, options, place, report).run(batches, source)


@contextlib.contextmanager
def _task_producer(config: Mapping[str, Any]) -> Iterator[Producer]:
    """Yield a producer for one transaction; if the task fails, it is aborted, so that it does not hold up readers."""
    # Failed records are no errors of the program: the task raises why, or an attempt beside it has written the rows.
    engine = Engine(ProducerConfig.from_options(config), SystemClock(), unseen_failures_level=logging.DEBUG)
    producer = start_producer(Producer, engine)
    try:
        yield producer
    except BaseException:
        with contextlib.suppress(KafkaError):
            producer.abort_transaction(_ABORT_S)
        raise
    finally:
        producer.close(0)  # everything has its outcome


class _Attempt:
    def __init__(self, plan: WritePlan, options: TransactionOptions, place: TaskPlace, report: WriteReport) -> None:
        self._plan = plan
        self._options = options
        self._place = place
        self._report = report
        self._mark_place = MarkPlace.of(options, place.query, place.partition)
        self._config = transactional_options(plan.options, self._mark_place.name)

    def run(self, batches: Iterator[pa.RecordBatch], source: WorkerInput | None) -> None:
        with ClusterClient(ProducerConfig.from_options(self._config)) as client:
            mark = self._glance(client)
            if self._is_done(mark):
                self._skip(mark, batches)
                return
            with _task_producer(self._config) as producer:
                batches = read_if_shut(batches, source)
                producer.init_transactions()
                mark = read_mark(client, self._mark_place, SETTLED_MS)
                if self._is_done(mark):
                    self._skip(mark, batches)
                    return
                if mark is None and self._place.batch > 0:
                    logger.info("%s finds no write mark: it is the first with rows, or marks have expired", self._place)
                try:
                    self._write(client, producer, batches)
                except InputCutError:
                    raise  # whoever has written the rows, this attempt has failed: its transaction is aborted
                except KafkaError as error:
                    mark = self._seek_outcome(client, producer, error)
                    if not self._is_done(mark):
                        raise
                    self._log_success_of(mark, error)
                    self._take_over(mark)

    def _glance(self, client: ClusterClient) -> WriteMark | None:
        """Look without fencing; a transaction that stays open counts as no mark."""
        try:
            return read_mark(client, self._mark_place, GLANCE_MS)
        except BrokerError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            return None

    def _is_done(self, mark: WriteMark | None) -> bool:
        """Whether the rows are in Kafka. Raises ConfigError for a mark of another stream."""
        if mark is None:
            return False
        self._place.check_owner(mark)
        if self._place.run and mark.run == self._place.run and mark.batch < self._place.batch:
            self._report.has_gone_on = True
        return mark.batch >= self._place.batch

    def _write(self, client: ClusterClient, producer: Producer, batches: Iterator[pa.RecordBatch]) -> None:
        count = RowCount(self._options)
        producer.begin_transaction()
        TaskWriter(self._plan, producer, self._report).run(count.watch(batches))
        place, plan = self._place, self._plan
        mark = WriteMark(
            place.batch, count.rows, count.checksum, self._report.attempt, place.run, plan.token, place.stream
        )
        if self._is_done(self._guard(client, producer, mark)):
            raise KafkaError(
                f"{place} was written by another attempt, which the coordinator that was looked at first did not know: "
                "nothing is written now. Spark runs the task again"
            )
        commit(producer, self._options.twin_wait_ms / 1000)
        self._report.retries = retry_count(producer)

    def _guard(self, client: ClusterClient, producer: Producer, mark: WriteMark) -> WriteMark | None:
        """Send the pending mark; return the mark before it, as the coordinator says that has taken this one."""
        place = self._mark_place
        offsets: dict[tuple[str, int], tuple[int, str]] = {place.partition: (mark.batch + 1, mark.to_text())}
        before = send_mark(client, producer, place.name, offsets, self._options.twin_wait_ms / 1000)
        found = before.get(place.partition)
        return None if found is None else WriteMark.from_committed(found, place)

    def _seek_outcome(self, client: ClusterClient, producer: Producer, error: KafkaError) -> WriteMark | None:
        """Return the mark that another attempt, or our own commit, has written in spite of an error."""
        is_abortable = error.category in (None, "abortable") and error.outcome in (None, "not committed")
        if is_abortable and not _may_be_fenced(error):
            try:
                producer.abort_transaction()
            except KafkaError as refusal:
                error.add_note(f"the transaction could not be aborted: {refusal}")
            else:
                return None  # it was ours to the end: no other attempt can have written
        deadline_s = time.monotonic() + self._options.twin_wait_ms / 1000
        while True:
            mark = self._glance(client)
            if self._is_done(mark) or time.monotonic() > deadline_s:
                return mark
            time.sleep(_POLL_S)

    def _skip(self, mark: WriteMark | None, batches: Iterator[pa.RecordBatch]) -> None:
        """End without writing: the rows are in Kafka."""
        assert mark is not None
        place = self._place
        if mark.batch == place.batch:
            if place.run and mark.run == place.run and mark.write != self._plan.token:
                raise ConfigError(
                    f"two writes of micro-batch {place.batch} have the same id {place.query!r} and the same "
                    f"marker.topic {self._options.mark_topic!r}, so the second would be taken for a repetition of the "
                    "first: give each a write.id of its own"
                )
            check_rows(self._options, mark, batches, str(place))
        else:
            logger.warning("%s is late: micro-batch %d is already written", place, mark.batch)
        self._take_over(mark)

    def _log_success_of(self, mark: WriteMark | None, error: KafkaError) -> None:
        """Say that the rows are in Kafka, in spite of an error that reads as if they were lost."""
        assert mark is not None
        if mark.attempt == self._report.attempt:
            logger.warning("%s is committed, although its commit ended with an error: %s", self._place, error)
            return
        logger.warning(
            "%s was replaced by attempt %d, which has written the same rows: nothing is lost, and readers of committed "
            "data do not see what this attempt sent",
            self._place,
            mark.attempt,
        )
        logger.debug("%s ended with an error of its own: %s", self._place, error)

    def _take_over(self, mark: WriteMark | None) -> None:
        """Report what another attempt has written."""
        assert mark is not None
        report = self._report
        report.rows = mark.rows if mark.batch == self._place.batch else 0
        report.bytes = report.batches = report.retries = 0
        report.offsets = {}
        report.already_written = 1
        logger.info("%s was written by attempt %d: %d rows", self._place, mark.attempt, mark.rows)


def _may_be_fenced(error: BaseException | None) -> bool:
    """Whether a log has a later epoch, because a newer producer takes over, or the transaction was open for too long.

    An abort proves nothing then: the coordinator takes it for a repetition of its own abort (KIP-890), and agrees.
    """
    while error is not None:
        if getattr(error, "code", None) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE):
            return True
        error = error.__cause__
    return False
