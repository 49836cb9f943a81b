"""Producer: what application code holds. A thin shell over the intake and the engine, waiting on the calling thread.

On the record's line this is the start: `send` (compiled, `_core.queues.send_path`) appends plain bytes to a known topic
directly; records with hooks, of unknown topics, or that find no memory go through `intake`. Thread-safe, every method.
Waiting happens in `engine.steps.run` and nowhere else, on primitives that let Ctrl-C through.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack, overload

import kafkaprod  # whose names of what is seldom used are loaded when type hints are looked at
from kafkaprod._core.columns.columns import Headers
from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.send_path import RecordSender
from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.config.option_types import OptionTypes
from kafkaprod.engine.engine import Engine
from kafkaprod.engine.host import EngineHost, Hosted, check_delivered, left_open, patience_after
from kafkaprod.engine.steps import run
from kafkaprod.engine.transaction_calls import TransactionBlock, TransactionCalls
from kafkaprod.intake.blocks import BlockIntake
from kafkaprod.intake.checks import ColumnLike
from kafkaprod.intake.records import Intake
from kafkaprod.metrics import Snapshot
from kafkaprod.structs import NodeHealth
from kafkaprod.text import plain_text
from kafkaprod.threads import importing

AnyProducer = TypeVar("AnyProducer", bound="Producer")

if TYPE_CHECKING:
    from kafkaprod.marks.calls import WriteCalls
    from kafkaprod.marks.writers import KeptWriter, WritingProducer

Verify = Literal["content", "count", "none"]


@importing
def _cluster_calls() -> ModuleType:
    from kafkaprod.admin import cluster

    return cluster


@importing
def _marks() -> tuple[type[WriteCalls], ModuleType]:
    from kafkaprod.marks import writers
    from kafkaprod.marks.calls import WriteCalls

    return WriteCalls, writers


class Producer(Hosted, RecordSender):
    """Sends records to Apache Kafka.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("orders", b"value", key=b"key")

    Args:
        config: Options as a mapping; names as Kafka's, with dots or underscores, or librdkafka's. Or a ProducerConfig,
            as `ProducerConfig.from_file` reads it from a Java `.properties` file.
        options: The same as keyword arguments. docs/configuration.md lists them all.

    Raises:
        ConfigError: An option is unknown, out of range or conflicts with another; nothing was started.

    Leaving the `with` block flushes, closes, and raises DeliveryFailedError for failed records that were never checked.
    If Ctrl-C or exit() ends the block, what is queued is given 10 s; after exit() what is left raises that error, too.
    A producer does not survive fork(): in the child every call raises ForkedProducerError; in the parent it works on.
    """

    def __init__(
        self, config: Mapping[str, Any] | ProducerConfig | None = None, /, **options: Unpack[OptionTypes]
    ) -> None:
        self._start(Engine(ProducerConfig.from_options(config, **options), SystemClock()))

    @property
    def engine(self) -> Engine:
        """The parts behind it, for kafkaprod's own commands; not a stable interface."""
        return self._engine

    def _start(self, engine: Engine) -> None:
        self._engine = engine
        self._host = EngineHost(engine)
        self._intake = Intake(self._host)
        self._blocks = BlockIntake(self._intake, self._host)
        self._transaction_calls = TransactionCalls(self._host)
        self._kept_writers: list[KeptWriter] = []
        intake = self._intake
        RecordSender.__init__(self, engine.accumulator, intake.send_blocking, self._host.hooks, intake.send_hooked)
        self._host.start(self)

    # -- blocks of records ---------------------------------------------------------------------------------------------

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Any = None,
        timestamps_ms: Any = None,
        partitions: Any = None,
        partition: int | None = None,
        *,
        write_id: str | None = None,
        verify: Verify = "content",
    ) -> kafkaprod.BlockResult:
        """Queue a list of records; one result for all of them.

        Serializers and the partitioner see them, interceptors see the block.

        Args:
            topic: Its name.
            values: Bytes-like objects or None, or what the serializers take.
            keys: As many, of the same kinds; None: no keys.
            headers: Pairs (str, bytes or None) for every record alike, or a list of such lists, one per record.
            timestamps_ms: Integers, one per record: ms since the epoch; fastest as int64 array (NumPy). None: now.
            partitions: Integers, one per record, -1 to choose by key or sticky; fastest as int32 array. None: choose.
            partition: One partition for all.
            write_id, verify: As for send_table.

        Returns:
            A BlockResult; row i is record i.

        Raises:
            InvalidRecordError, RecordTooLargeError, SerializationError: Names the row; nothing was queued.
            BufferFullError: After max_block_ms; its `result` has the rows that were queued before.
            MemoryError: The system has no memory; `result` as above, if it is set.
        """
        arguments = (topic, values, keys, headers, timestamps_ms, partitions, partition)
        if write_id is not None:
            result: kafkaprod.BlockResult = self._writes.call(
                "send_many", arguments, {"write_id": write_id, "verify": verify}
            )
            return result
        return run(self._blocks.send_many(*arguments))

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
        *,
        write_id: str | None = None,
        verify: Verify = "content",
    ) -> kafkaprod.BlockResult:
        """Queue columns of bytes without making an object per record.

        The partitioner sees them, if one is configured, interceptors see the block; serializers do not.

        Args:
            topic: Its name.
            value, key: A Column, or a tuple (offsets, data) or (offsets, data, validity) of buffers: int32 or int64
                offsets, one more than rows; validity is an Arrow bitmap, or an array of bool with one item per row.
                None: null in every row. Buffers must not change until the call returns.
            headers: Headers, or pairs (str, bytes or None) for every row.
            timestamps_ms, partitions, partition: As for send_many.
            row_count: Needed only if neither value nor key has a length; at most 2^24 then.
            write_id, verify: As for send_table.

        Returns, raises: As send_many.
        """
        arguments = (topic, value, key, headers, timestamps_ms, partitions, partition, row_count)
        if write_id is not None:
            result: kafkaprod.BlockResult = self._writes.call(
                "send_columns", arguments, {"write_id": write_id, "verify": verify}
            )
            return result
        return run(self._blocks.send_columns(*arguments))

    def send_table(
        self,
        topic: str | None,
        data: Any,
        *,
        value: kafkaprod.ValueSpec = "value",
        key: kafkaprod.ValueSpec = None,
        headers: Any = None,
        timestamp: str | kafkaprod.Named | int | None = None,
        partition: str | kafkaprod.Named | int | None = None,
        topic_column: str | None = None,
        columns: Sequence[str] | None = None,
        write_id: str | None = None,
        verify: Verify = "content",
    ) -> kafkaprod.TableResult:
        """Queue every row of a table as a record.

        The partitioner sees them, if one is configured, interceptors see the block; serializers do not.

        Args:
            topic: Its name; with `topic_column` the topic of rows that have null there, or None.
            data: An Arrow table, batch, reader or array of any library (pyarrow, polars, duckdb, pandas), a mapping of
                names to NumPy arrays or lists, a NumPy structured array, a list of dicts; or in parts: a pyarrow or Ray
                dataset, a LazyFrame, a Daft frame, an iterator. Buffers are kept until their rows are in batches.
            value: Name of a string or binary column; "json" or JsonRows() for whole rows as JSON; AvroRows() for rows
                as Avro; bytes for every row; None: null. A table with a column "json" needs JsonRows() or Named().
            key: Name of a string or binary column, bytes for every row, or None: no keys.
            headers: Name of a list<struct<key, value>> or map column, or pairs (str, bytes) for every row.
            timestamp: Name of a timestamp, date or int64 (ms) column, or ms for every row; null or None: now.
            partition: Name of an integer column, or a number for every row; null or None: by key or sticky.
            topic_column: Name of a string column with each row's topic.
            columns: With value="json": names of the columns to write; None: all.
            write_id: A name of this write, the same each time that it is run: its rows are written once. The call
                returns when they are committed, in a transaction of their own; `already_written` of the result says
                whether an earlier call had committed them. docs/exactly-once.md says what is promised.
            verify: What the rows of a repetition are compared by: "content", "count" or "none".

        Returns: A TableResult; row i is the table's row i.

        Raises:
            InvalidRecordError, RecordTooLargeError, SerializationError: Naming column and row; earlier batches of the
                table are queued, and the error's `result` has their rows.
            BufferFullError: After max_block_ms; `result` as above.
            WriteConflictError: The write_id is known with other rows; nothing was written. See errors.WriteError.
        """
        options: dict[str, Any] = {"value": value, "key": key, "headers": headers, "timestamp": timestamp}
        options |= {"partition": partition, "topic_column": topic_column, "columns": columns}
        if write_id is not None:
            options |= {"write_id": write_id, "verify": verify}
            result: kafkaprod.TableResult = self._writes.call("send_table", (topic, data), options)
            return result
        return run(self._blocks.send_table(topic, data, **options))

    # -- transactions --------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get ready for transactions: once, before the first. Fences other producers with the same transactional_id.

        Waits until a transaction that an earlier one left behind is completed.

        Args:
            timeout: Seconds; None: max_block_ms. The same for all calls below.

        Raises:
            TransactionTimeoutError, BootstrapError (no server has ever answered): It continues; call again.
            AuthorizationError: No Write on the transactional id; may be called again.
            ConfigError: transaction_timeout_ms is more than the broker allows.
            IllegalStateError: It was called before, there is no transactional_id, or this is a delivery callback.
        """
        run(self._transaction_calls.init(timeout, Waiter))

    def begin_transaction(self) -> None:
        """Open a transaction; never waits. Records may be sent from now on, from any thread.

        Raises:
            IllegalStateError: One is open, or `init_transactions` has not succeeded.
            TransactionAbortableError, DeliveryFailedError: The last one failed and must be aborted.
            ProducerFencedError: Another producer took over. All calls below raise it, too.
        """
        self._transaction_calls.begin()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any, timeout: float | None = None) -> None:
        """Commit offsets of the input together with the transaction.

        Args:
            offsets: The next offset to read of each partition: a mapping of (topic, partition) to an int, to
                (offset, metadata) or to an object with `offset`; or confluent-kafka's TopicPartition objects.
            group_metadata: kafka-python's `group_metadata()`, confluent-kafka's `consumer_group_metadata()`, aiokafka's
                consumer, or the group id alone.
            timeout: Seconds; None: max_block_ms.

        Raises:
            TransactionTimeoutError: It continues; make the same call again, or abort.
            TransactionAbortableError: Such as ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID: the group has given the input to
                another member.
            InvalidRecordError: The offsets or the metadata are not understood; nothing was sent.
        """
        run(self._transaction_calls.send_offsets(offsets, group_metadata, timeout, Waiter))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send everything queued, wait for every outcome, and commit. Returns when that is decided and durable.

        Raises:
            DeliveryFailedError: A record of the transaction failed; nothing is committed, abort.
            TransactionAbortableError: It cannot be committed, abort; `outcome` "unknown": it may have been.
            CommitUnknownError: Not decided within the timeout; make the same call again.
        """
        run(self._transaction_calls.commit(timeout, Waiter))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop records that were not sent, wait for the others, and abort.

        Raises:
            TransactionTimeoutError: It continues; make the same call again.
            ProducerFencedError: Another producer took over.
        """
        run(self._transaction_calls.abort(timeout, Waiter))

    @overload
    def transaction(self) -> TransactionBlock[Self]: ...

    @overload
    def transaction(
        self, *, write_id: str, verify: Verify = "content", parts: int | bool = False
    ) -> kafkaprod.WriteBlock: ...

    def transaction(
        self, *, write_id: str | None = None, verify: Verify = "content", parts: int | bool = False
    ) -> TransactionBlock[Self] | kafkaprod.WriteBlock:
        """Return the block of a transaction: it begins, commits at the end, and aborts if the block raises.

        with producer.transaction():
            producer.send("orders", b"value")

        With `write_id`, as for send_table, the value of `as` sends: `with ... as tx: tx.send("orders", b"value")`. It
        needs no transactional_id, and `tx.already_written` says whether the write is committed. With `parts` it is
        committed whenever so many rows were sent, or, with True, in time for transaction_timeout_ms.
        """
        if write_id is not None:
            return self._writes.block(write_id, verify, parts)
        return TransactionBlock(self, self._transaction_calls)

    @property
    def _writes(self) -> WriteCalls:
        self._host.check_usable()
        calls, writers = _marks()
        return calls(self._blocks, writers.Writers(self.config, start_writer, self._kept_writers, self._host))

    # -- flush and close -----------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything queued so far at once and wait until each record has its outcome and its callbacks have run.

        Args:
            timeout: Seconds; None: as long as it takes, which delivery_timeout_ms bounds.

        Raises:
            TimeoutError: Not all have their outcome; they stay queued.
            DeliveryFailedError: Records failed since the last flush, and their results were never checked.
            IllegalStateError: Called from a delivery callback, which runs on the thread that would have to do it.
        """
        run(self._host.flush(timeout, Waiter))

    def sync(self, timeout: float | None = None) -> None:
        """Wait until each record sent so far is on the disk, in the spool; it is in the topic later.

        Raises TimeoutError (the spool is full, the disk slow), OSError (it failed), IllegalStateError (no spool_dir).
        """
        run(self._host.sync(timeout, Waiter))

    def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> int:
        """Fail records that wait to be sent, or are in requests without an answer, with PurgedError; return how many.

        Those in flight may be in the log (`possibly_persisted`). In a delivery callback it acts later and returns 0.
        """
        return run(self._host.purge(Waiter, in_queue=in_queue, in_flight=in_flight))

    def close(self, timeout: float | None = None) -> None:
        """Refuse further records, deliver those queued, and end the sender thread.

        Args:
            timeout: Seconds; what is not delivered then fails with ProducerClosedError. None: as long as it takes.

        An open transaction is aborted, in max_block_ms at most; close(0) leaves it to its timeout. A second call waits,
        too; the earliest end holds. In a delivery callback it acts as close(0). Unchecked failures are logged.

        Raises:
            TimeoutError: The sender thread has not ended a second after the timeout; the message names what it runs.
        """
        try:
            run(self._host.close(timeout, Waiter))
            self._host.join()
        finally:  # a write that ends from here on finds the producer closed
            close_writers(self._kept_writers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._host.is_closed:
            try:
                self.flush()
            except BaseException as failure:
                self.close(patience_after(failure))
                raise
        is_left_open = kind is None and self._host.has_open_transaction
        self.close(patience_after(error))
        check_delivered(self._engine, error)
        if is_left_open:
            raise left_open()

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def config(self) -> ProducerConfig:
        """The effective configuration."""
        return self._host.config

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers, waiting for its metadata up to max_block_ms.

        Raises: MetadataTimeoutError, BootstrapError, AuthorizationError, InvalidRecordError for a bad name.
        """
        return run(self._intake.partitions_for(topic, Waiter))

    def check(self, timeout: float = 10.0) -> None:
        """Find out now, in `timeout` seconds, whether the cluster can be reached with these options.

        It logs in, reads metadata, and connects to a broker at its own address. Raises BootstrapError, which names
        servers and causes, AuthenticationError (login, certificate), RequestTimedOutError (no answer after the login).
        """
        self._host.check_usable()
        _cluster_calls().check_cluster(self.config, timeout)

    def list_topics(self, topics: list[str] | str | None = None, timeout: float = 10.0) -> kafkaprod.ClusterInfo:
        """Return the cluster's brokers and topics, within `timeout` seconds; no topic is created.

        `topics`: A name, or a list; None: all that this user may see. `errors` of the result says why some are missing.
        """
        self._host.check_usable()
        names = [plain_text(topics)] if isinstance(topics, str) else topics
        found: kafkaprod.ClusterInfo = _cluster_calls().describe_cluster(self.config, names, timeout)
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Take others for the next logins with PLAIN or SCRAM. Raises ConfigError if the logins have no password."""
        self._host.check_usable()
        self._engine.set_credentials(username, password)

    def bootstrap_connected(self) -> bool:
        """Whether cluster metadata has arrived."""
        return self._engine.topic_watch.is_connected

    def node_states(self) -> dict[int, NodeHealth]:
        """Return how each broker is, by node id. Thread-safe; never waits."""
        return self._engine.node_states()

    def metrics(self) -> Snapshot:
        """Return Kafka's producer metrics as {group: {name: value}}, as kafka-python does."""
        self._host.check_not_forked()
        return self._engine.snapshot()

    def __len__(self) -> int:
        """Batches that have no outcome yet."""
        return int(self.accumulator.incomplete_batch_count)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, as it holds a thread and connections: "
            "make one in each process or task, for example from the same configuration"
        )


def start_writer(config: ProducerConfig) -> WritingProducer:
    """Start the producer of one write, with its parts; for kafkaprod's own rooms."""
    # Failed records are no errors of the program: the write raises why, or another try has written the rows.
    producer = start_producer(Producer, Engine(config, SystemClock(), unseen_failures_level=logging.DEBUG))
    make: type[WritingProducer] = _marks()[1].WritingProducer
    return make(producer, producer._blocks, producer._transaction_calls.identity)


def close_writers(kept: list[KeptWriter]) -> None:
    """Close the writers of a producer that is closed."""
    if kept:
        _marks()[1].close_all(kept)


def start_producer(kind: type[AnyProducer], engine: Engine) -> AnyProducer:
    """Make a producer of an engine that was not started yet, for what no option can say, such as its identity.

    For kafkaprod's own commands; not a stable interface.
    """
    producer = kind.__new__(kind)
    producer._start(engine)
    return producer
