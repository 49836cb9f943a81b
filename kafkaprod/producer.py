"""Producer: what application code holds. A thin shell over the core's send path and one sender thread.

On the record's line this is the start: `send` (compiled, `_core.queues.send_path`) appends plain bytes to a known topic
directly; everything else comes through `_send_general` here: hooks, unknown topics, a full pool. Blocks of records go
through `send_many` and `send_columns`. Thread-safe, every method. Waiting for memory, metadata, a flush or the end is
done here and nowhere else, always with a bound, on primitives that let Ctrl-C through.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.queues.accumulator import TopicQueues
from kafkaprod._core.queues.blocks import Block
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod._core.records.integers import checked_integer
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.engine import Engine
from kafkaprod.engine.flushes import Flush
from kafkaprod.errors import (
    BufferFullError,
    DeliveryFailedError,
    ForkedProducerError,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from kafkaprod.hooks.interceptors import ProducerRecord
from kafkaprod.results.batch import DeliveryFuture
from kafkaprod.results.waiting import Waiter

# Imported when the first block or table is sent: they need NumPy, which takes longer to import than all the rest.
if TYPE_CHECKING:
    from kafkaprod.results.block import BlockResult
    from kafkaprod.tables import Named, Part, TableResult, ValueSpec

EXIT_TIMEOUT_S: Final = 10.0  # how long the end of the interpreter waits for records still on their way
MAX_CLOSE_MS: Final = 1 << 40
MAX_PARTITION: Final = (1 << 31) - 1
MAX_TIMESTAMP_MS: Final = (1 << 63) - 1
CLOSE_GRACE_S: Final = 1.0  # beyond close()'s timeout, for failing what is left and for callbacks
MEMORY_POLL_S: Final = 0.25  # longest sleep between looks at whether the producer is still usable

_log = logging.getLogger("kafkaprod.producer")
_open_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_running: dict[Engine, None] = {}  # also of producers that were dropped, or whose close() was interrupted

ColumnLike = Column | tuple[Any, ...] | Sequence[Any]


class Producer(RecordSender):
    """Sends records to Apache Kafka.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("orders", b"value", key=b"key")

    Args:
        config: Options as a mapping; names as Kafka's, with dots or underscores, or librdkafka's.
        options: The same as keyword arguments. docs/configuration.md lists them all.

    Raises:
        ConfigError: An option is unknown, out of range or conflicts with another; nothing was started.

    Leaving the `with` block flushes, closes, and raises DeliveryFailedError if records failed that nobody looked at.
    If Ctrl-C or exit() ends the block, what is queued is given 10 s.
    A producer does not survive fork(): in the child every call raises ForkedProducerError; the parent's goes on.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        self._config = ProducerConfig.from_options(config, **options)
        self._clock = SystemClock()
        self._engine = self._make_engine()
        super().__init__(self._engine.accumulator, self._engine.hooks.has_any)
        self._hooks = self._engine.hooks
        self._refusal: Callable[[], KafkaError] | None = None
        self._thread = threading.Thread(
            target=_run, args=(self._engine,), name=f"kafkaprod-{self._config.client_id}", daemon=True
        )
        _running[self._engine] = None
        try:
            self._thread.start()
        except RuntimeError:  # no more threads
            del _running[self._engine]
            self._engine.node_pool.close()
            raise
        # A producer that is dropped without close() still delivers what it was given.
        self._finalizer = weakref.finalize(self, self._engine.sender.close, MAX_CLOSE_MS)
        self._finalizer.atexit = False
        _open_producers.add(self)

    def _make_engine(self) -> Engine:
        return Engine(self._config, self._clock)

    # --- one record ------------------------------------------------------------------------------------------------

    def _send_general(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> DeliveryFuture:
        self._check_usable()
        deadline_ms = self._clock.now_ms() + self._config.max_block_ms
        record = self._hooks.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            future = self._append(record, deadline_ms)
        except Exception as error:
            self._hooks.on_refused(record.topic, record.partition, error)
            raise
        self._hooks.watch(future)
        return future

    def _append(self, record: ProducerRecord, deadline_ms: int) -> DeliveryFuture:
        append, need = self._prepare(record, self._topic_queues(record.topic, deadline_ms, record.partition))
        future = append(0)
        if future is not None:
            return future
        waited: DeliveryFuture = self._with_memory(append, need, deadline_ms, record.topic)
        return waited

    def _prepare(
        self, record: ProducerRecord, queues: TopicQueues
    ) -> tuple[Callable[[int], DeliveryFuture | None], Callable[[], int]]:
        """Run the hooks; return what appends the record (given a memory ticket) and what tells how much it needs."""
        headers = record.headers
        key, value = self._hooks.serialize(record)
        partition = self._hooks.choose_partition(record, key, value, queues.leaders)
        chosen = -1 if partition is None else checked_integer(partition, "partition", 0, MAX_PARTITION)
        timestamp_ms = self._clock.wall_ms() if record.timestamp_ms is None else record.timestamp_ms
        timestamp = checked_integer(timestamp_ms, "timestamp_ms", 0, MAX_TIMESTAMP_MS)

        def append(ticket: int) -> DeliveryFuture | None:
            return self.accumulator.append(queues, key, value, headers, chosen, timestamp, -1, ticket)

        return append, lambda: self.accumulator.memory_need(key, value, headers)

    # --- blocks of records -----------------------------------------------------------------------------------------

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Any = None,
        timestamps_ms: Any = None,
        partitions: Any = None,
        partition: int | None = None,
    ) -> BlockResult:
        """Queue a list of records; one result for all of them.

        Serializers and the partitioner see them, interceptors do not.

        Args:
            topic: Its name.
            values: Bytes-like objects or None, or what the serializers take.
            keys: As many, likewise; None: no keys.
            headers: Pairs (str, bytes or None) for every record alike, or a list of such lists, one per record.
            timestamps_ms: Integers, one per record: ms since the epoch; fastest as int64 array (NumPy). None: now.
            partitions: Integers, one per record, -1 to choose by key or sticky; fastest as int32 array. None: choose.
            partition: One partition for all.

        Returns:
            A BlockResult; row i is record i.

        Raises:
            InvalidRecordError, RecordTooLargeError, SerializationError: Names the row; nothing was queued.
            BufferFullError: After max_block_ms; its `result` has the rows that were queued before.
        """
        self._check_usable()
        if self._hooks.has_any:
            values = _records(values, "values")
            keys = None if keys is None else _records(keys, "keys")
            keys, values, headers = self._hooks.serialize_block(topic, keys, values, headers)
        return self._send_block(
            topic,
            Column.from_list(values, "values"),
            None if keys is None else Column.from_list(keys, "keys"),
            Headers.from_python(headers),
            None,
            timestamps_ms,
            partitions,
            partition,
        )

    def send_columns(
        self,
        topic: str,
        value: ColumnLike | None,
        key: ColumnLike | None = None,
        headers: Headers | Any = None,
        timestamps_ms: Any = None,
        partitions: Any = None,
        partition: int | None = None,
        row_count: int | None = None,
    ) -> BlockResult:
        """Queue columns of bytes without making an object per record.

        The partitioner sees them, if one is configured; serializers and interceptors do not.

        Args:
            topic: Its name.
            value, key: A Column, or a tuple (offsets, data) or (offsets, data, validity) of buffers: int32 or int64
                offsets, one more than rows; validity is an Arrow bitmap, or an array of bool with one item per row.
                None: null in every row. Buffers must not change until the call returns.
            headers: Headers, or pairs (str, bytes or None) for every row.
            timestamps_ms, partitions, partition: As for send_many.
            row_count: Needed only if neither value nor key has a length.

        Returns, raises: As send_many.
        """
        self._check_usable()
        return self._send_block(
            topic,
            _column(value, "value"),
            _column(key, "key"),
            headers if isinstance(headers, Headers) else Headers.from_python(headers),
            row_count,
            timestamps_ms,
            partitions,
            partition,
        )

    def send_table(
        self,
        topic: str | None,
        data: Any,
        *,
        value: ValueSpec = "value",
        key: ValueSpec = None,
        headers: Any = None,
        timestamp: str | Named | int | None = None,
        partition: str | Named | int | None = None,
        topic_column: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> TableResult:
        """Queue every row of a table as a record.

        The partitioner sees them, if one is configured; serializers and interceptors do not.

        Args:
            topic: Its name; with `topic_column` the topic of rows that have null there, or None.
            data: An Arrow table, batch, reader, array or series of any library (pyarrow, polars, duckdb, pandas,
                nanoarrow), a mapping of names to NumPy arrays or lists, or a NumPy structured array. Nothing is
                converted and pyarrow is not needed; buffers are kept until their rows are copied into batches.
            value: Name of a string or binary column; "json" or JsonRows() for whole rows as JSON; AvroRows() for rows
                as Avro; bytes for every row; None: null. A table with a column "json" needs JsonRows() or Named().
            key: Name of a string or binary column, bytes for every row, or None: no keys.
            headers: Name of a list<struct<key, value>> or map column, or pairs (str, bytes) for every row.
            timestamp: Name of a timestamp, date or int64 (ms) column, or ms for every row; null or None: now.
            partition: Name of an integer column, or a number for every row; null or None: by key or sticky.
            topic_column: Name of a string column with each row's topic.
            columns: With value="json": names of the columns to write; None: all.

        Returns: A TableResult; row i is the table's row i.

        Raises:
            InvalidRecordError, RecordTooLargeError, SerializationError: Naming column and row; earlier batches of the
                table are queued, and the error's `result` has their rows.
            BufferFullError: After max_block_ms; `result` likewise.
        """
        from kafkaprod.results.block import BlockResult
        from kafkaprod.tables import TablePlan, TableResult, read_batches

        self._check_usable()
        plan = TablePlan(topic, value, key, headers, timestamp, partition, topic_column, columns)
        result = TableResult()
        part: Part | None = None
        first = 0
        try:
            for batch in read_batches(data):
                first, part = result.row_count, None
                for part in plan.parts(batch, self._clock.wall_ms()):
                    result.add(part.rows_from(first), part.topic, self._send_part(part))
        except (BufferFullError, InvalidRecordError, RecordTooLargeError, SerializationError) as error:
            if part is not None and isinstance(error.result, BlockResult):
                result.add(part.rows_from(first), part.topic, error.result)
            elif first or part is not None:
                error.args = (f"{error} ({_where(part, first)})",)
            error.result = result
            raise
        return result

    def _send_part(self, part: Part) -> BlockResult:
        return self._send_block(
            part.topic, part.value, part.key, part.headers, len(part.rows), part.timestamps_ms, part.partitions, None
        )

    def _send_block(
        self,
        topic: str,
        value: Column,
        key: Column | None,
        headers: Headers,
        row_count: int | None,
        timestamps_ms: Any,
        partitions: Any,
        partition: int | None,
    ) -> BlockResult:
        from kafkaprod.results.block import BlockResult

        deadline_ms = self._clock.now_ms() + self._config.max_block_ms
        queues = self._topic_queues(topic, deadline_ms, partition)
        if partition is None and self._hooks.has_partitioner:
            rows = max(value.row_count, -1 if key is None else key.row_count, headers.row_count)
            if rows < 0 and row_count is not None:
                rows = checked_integer(row_count, "row_count", 0, MAX_PARTITION)
            partitions = self._hooks.choose_partitions(topic, key, value, max(rows, 0), partitions, queues.leaders)
        block = Block(
            self.accumulator,
            queues,
            value,
            key,
            headers,
            row_count,
            timestamps_ms,
            self._clock.wall_ms() if timestamps_ms is None else -1,
            partitions,
            -1 if partition is None else partition,
        )

        def run(ticket: int) -> bool | None:
            before = block.rows_appended
            if block.run(-1, ticket):
                return True
            # Some rows got in: the time to wait for memory starts anew, as it would for a loop of send().
            return False if block.rows_appended > before else None

        while (progress := run(0)) is not True:
            if progress is False:
                deadline_ms = self._clock.now_ms() + self._config.max_block_ms
            try:
                if self._with_memory(run, lambda: block.memory_need, deadline_ms, topic):
                    break
                deadline_ms = self._clock.now_ms() + self._config.max_block_ms
            except BufferFullError as error:
                error.result = BlockResult(block, error)
                raise
        return BlockResult(block)

    # --- waiting ---------------------------------------------------------------------------------------------------

    def _with_memory(self, attempt: Callable[[int], Any], need: Callable[[], int], deadline_ms: int, topic: str) -> Any:
        """Wait in line for memory and retry `attempt(ticket)` until it does not return None."""
        if self._config.buffer_full_policy == "raise" or self._is_in_callback():
            raise self._buffer_full(topic, 0)
        started_ns = time.perf_counter_ns()
        told = Waiter()
        pool = self.accumulator.pool
        ticket = pool.new_ticket()
        try:
            pool.enqueue_waiter(need(), told.wake, ticket)
            self._engine.sender.wakeup()
            while True:
                outcome = attempt(ticket)
                if outcome is not None:
                    return outcome
                remaining_ms = deadline_ms - self._clock.now_ms()
                if remaining_ms <= 0:
                    raise self._buffer_full(topic, self._config.max_block_ms)
                told.wait(min(remaining_ms / 1000, MEMORY_POLL_S))
                self._check_usable()
        finally:
            pool.dequeue_waiter(ticket)
            self._engine.metrics.add_memory_wait(time.perf_counter_ns() - started_ns, self._clock.now_ms())

    def _buffer_full(self, topic: str, waited_ms: int) -> BufferFullError:
        pool = self.accumulator.pool
        holders = "; ".join(
            f"{name}[{partition}] on node {leader}: {size} bytes in {batches} batches"
            for name, partition, leader, size, batches in self.accumulator.explain()
        )
        return BufferFullError(
            f"no memory for a record of topic {topic!r} within max_block_ms={waited_ms}: {pool.in_use} of "
            f"buffer_memory={pool.capacity} bytes in use, most by {holders or 'records being sent'}. Raise "
            "buffer_memory, or find out why these partitions are slow",
            topic=topic,
        )

    def _topic_queues(self, topic: str, deadline_ms: int, partition: int | None = None) -> TopicQueues:
        """The topic's queues once its metadata is here; waits also for a partition that is not known yet."""
        queues = self._known_queues(topic, partition)
        if queues is not None:
            return queues
        if self._is_in_callback():
            deadline_ms = 0  # the thread that fetches metadata must not wait for it: the topic is only asked for
        return self._engine.topic_watch.wait_for(topic, partition, deadline_ms, self._check_usable)

    def _known_queues(self, topic: str, partition: int | None) -> TopicQueues | None:
        """The topic's queues if its metadata is here, with the partition. Raises InvalidRecordError for bad names."""
        if not isinstance(topic, str):
            raise InvalidRecordError(f"topic must be str, not {type(topic).__name__}")
        if partition is not None:
            partition = checked_integer(partition, "partition", 0, MAX_PARTITION)
        queues = self.accumulator.topics.get(topic)
        if queues is not None and (partition is None or partition < queues.partition_count):
            return queues
        _check_topic_name(topic)
        return None

    def _is_in_callback(self) -> bool:
        return threading.get_ident() == self._engine.guard.thread_id

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal()
        if self._engine.sender.fatal_error is not None:
            raise ProducerClosedError(
                f"the sender thread has died: {self._engine.sender.fatal_error!r}"
            ) from self._engine.sender.fatal_error

    # --- flush and close -------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything queued so far at once and wait until each record has its outcome and its callbacks have run.

        Args:
            timeout: Seconds; None: as long as it takes, which delivery_timeout_ms bounds.

        Raises:
            TimeoutError: Not all have their outcome; they stay queued.
            DeliveryFailedError: Records failed since the last flush and nobody looked at their results.
            IllegalStateError: Called from a delivery callback, which runs on the thread that would have to do it.
        """
        self._check_usable()
        if self._is_in_callback():
            raise IllegalStateError("flush() inside a delivery callback would wait for itself")
        if self.accumulator.untold_batch_count > 0:
            told = Waiter()
            with self._flushing(told.wake):
                if not told.wait(timeout):
                    raise self._flush_timed_out(timeout)
        self._raise_unseen_failures()

    @contextmanager
    def _flushing(self, wake: Callable[[], None]) -> Iterator[None]:
        """While the block runs, everything queued is sent at once; `wake` is called when it has its outcome."""
        started_ns = time.perf_counter_ns()
        flush = Flush(wake)
        try:
            self._engine.sender.add_flush(flush)
            yield
        finally:
            flush.is_over = True
            self._engine.metrics.add_time("flush", time.perf_counter_ns() - started_ns)

    def _flush_timed_out(self, timeout: float | None) -> TimeoutError:
        count = self.accumulator.incomplete_batch_count
        if count:
            return TimeoutError(f"{count} batches have no outcome after {timeout} s of flush()")
        work = self._engine.describe_work()
        return TimeoutError(f"not everybody was told of the last outcomes after {timeout} s of flush(): {work} runs")

    def _raise_unseen_failures(self) -> None:
        count, error = self._engine.ledger.take()
        if count:
            raise DeliveryFailedError(
                f"{count} records were not delivered, the first because: {error}", failed_count=count
            ) from error

    def close(self, timeout: float | None = None) -> None:
        """Refuse further records, deliver those queued, and end the sender thread.

        Args:
            timeout: Seconds; what is not delivered then fails with ProducerClosedError. None: as long as it takes.

        A second call waits likewise; the earliest end of all calls holds. From a delivery callback it acts as close(0)
        and returns at once. Failures that nobody looked at are logged.

        Raises:
            TimeoutError: The sender thread has not ended a second after the timeout; most often a delivery callback
                has not returned. The message says what runs.
        """
        if not self._begin_close(timeout):
            return
        if not self._engine.wait_end(None if timeout is None else max(timeout, 0) + CLOSE_GRACE_S):
            raise self._close_timed_out(timeout)
        self._thread.join(CLOSE_GRACE_S)  # its last instructions

    def _begin_close(self, timeout: float | None) -> bool:
        """Refuse records and let the sender thread end; whether its end can be waited for here."""
        if self._engine.guard.is_forked:  # also of one that was being closed: its thread ends in the parent
            return False
        self._refusal = self._refusal or _closed
        self.has_hooks = True  # sends every record through _send_general, which refuses it
        _open_producers.discard(self)
        self._finalizer.detach()
        limit_ms = MAX_CLOSE_MS if timeout is None else int(min(timeout * 1000, MAX_CLOSE_MS))
        self._engine.sender.close(self._clock.now_ms() + (0 if self._is_in_callback() else limit_ms))
        return not self._is_in_callback()

    def _close_timed_out(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(
            f"the sender thread has not ended {CLOSE_GRACE_S} s after close(timeout={timeout}): it runs "
            f"{self._engine.describe_work()}; delivery callbacks must return soon"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._refusal is None:
            try:
                self.flush()
            except BaseException as failure:
                self.close(_patience_after(failure))
                raise
        self.close(_patience_after(error))

    # --- questions -------------------------------------------------------------------------------------------------

    @property
    def config(self) -> ProducerConfig:
        """The effective configuration."""
        return self._config

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers, waiting for its metadata up to max_block_ms.

        Raises: MetadataTimeoutError, AuthorizationError, InvalidRecordError for a bad name.
        """
        self._check_usable()
        queues = self._topic_queues(topic, self._clock.now_ms() + self._config.max_block_ms)
        return set(range(queues.partition_count))

    def bootstrap_connected(self) -> bool:
        """Whether cluster metadata has arrived."""
        return self._engine.topic_watch.is_connected

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return Kafka's producer metrics as {group: {name: value}}, as kafka-python does."""
        if self._refusal is _forked:
            raise _forked()
        return self._engine.snapshot()

    def __len__(self) -> int:
        """Batches that have no outcome yet."""
        return int(self.accumulator.incomplete_batch_count)

    def __bool__(self) -> bool:
        return True


def _patience_after(error: BaseException | None) -> float | None:
    """How long close() may take after what ended a `with` block: one that wants the program to end should soon."""
    return None if error is None or isinstance(error, Exception) else EXIT_TIMEOUT_S


def _closed() -> KafkaError:
    return ProducerClosedError("the producer is closed")


def _forked() -> KafkaError:
    return ForkedProducerError(
        f"this producer was made in process {os.getppid()} or before and did not survive fork(): make one in the child"
    )


def _where(part: Part | None, first: int) -> str:
    """From where the rows in an error of a table's part are counted."""
    if part is None:
        return f"rows counted from row {first} of the table"
    rows = part.rows_from(first)
    if isinstance(rows, range):
        return f"rows counted from row {rows.start} of the table"
    return f"rows counted among those of topic {part.topic!r}, from row {int(rows[0])} of the table on"


def _records(items: Iterable[Any], name: str) -> list[Any]:
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise InvalidRecordError(
            f"{name} must be a list with one item per record, not a single {type(items).__name__} object"
        )
    return list(items)


def _column(source: ColumnLike | None, name: str) -> Column:
    if isinstance(source, Column):
        return source
    if source is None:
        return Column.nulls()
    if isinstance(source, tuple) and len(source) in (2, 3):
        return Column.from_offsets(source[0], source[1], source[2] if len(source) == 3 else None, name=name)
    raise InvalidRecordError(
        f"{name} must be a Column or a tuple (offsets, data[, validity]), not {type(source).__name__}"
    )


def _check_topic_name(topic: str) -> None:
    legal = all(c.isascii() and (c.isalnum() or c in "._-") for c in topic)
    if not 1 <= len(topic) <= 249 or topic in (".", "..") or not legal:
        raise InvalidRecordError(
            f"topic {topic[:260]!r} is not a legal name: 1 to 249 of the characters a-z A-Z 0-9 . _ -, not . or .."
        )


def _run(engine: Engine) -> None:
    """Body of the sender thread. Not a method: the thread must not keep a forgotten producer alive."""
    try:
        engine.run()
    finally:
        del _running[engine]


def _after_fork_in_child() -> None:
    for producer in list(_open_producers):
        producer._refusal = _forked
        producer.has_hooks = True
        producer._finalizer.detach()
    _open_producers.clear()
    for engine in _running:
        engine.after_fork_in_child()
    _running.clear()


def _at_exit() -> None:
    """Give all records still on their way EXIT_TIMEOUT_S together; the engines say which were not delivered."""
    engines = list(_running)
    end = time.monotonic() + EXIT_TIMEOUT_S
    for engine in engines:
        engine.sender.close(engine.clock.now_ms() + int(EXIT_TIMEOUT_S * 1000))
    for engine in engines:
        if not engine.wait_end(max(end - time.monotonic(), 0) + CLOSE_GRACE_S):
            work = engine.describe_work()
            _log.error("the sender thread does not end, it runs %s: the outcome of other records is not told", work)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
