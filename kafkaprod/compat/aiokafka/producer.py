"""aiokafka's AIOKafkaProducer over `kafkaprod.AsyncProducer`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

from kafkaprod import AsyncProducer
from kafkaprod import errors as ours
from kafkaprod.compat.aiokafka import options
from kafkaprod.compat.aiokafka.batch import BatchBuilder
from kafkaprod.compat.aiokafka.client import Client
from kafkaprod.compat.aiokafka.errors import IllegalOperation, ProducerClosed, translate
from kafkaprod.compat.aiokafka.outcomes import Outcomes
from kafkaprod.compat.aiokafka.structs import RecordMetadata, TopicPartition
from kafkaprod.compat.originals import original
from kafkaprod.compat.writes import AsyncOnceWrite, Row

_START_S: Final = 60.0
logger = logging.getLogger(__name__)


@contextlib.contextmanager
def _theirs() -> Iterator[None]:
    """Raise aiokafka's errors for kafkaprod's."""
    try:
        yield
    except (ours.KafkaError, TimeoutError) as error:
        raise translate(error) from error


class AIOKafkaProducer:
    """Sends records to Kafka from asyncio, with aiokafka's interface.

    Args: aiokafka's; docs/from-aiokafka.md has the differences.

    Raises:
        ValueError: An option has a wrong value.
        KafkaConfigurationError: An option is not offered.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: str | None = None,
        acks: Any = options.MISSING,
        key_serializer: Any = None,
        value_serializer: Any = None,
        compression_type: str | None = None,
        max_batch_size: int = options.BATCH_BYTES,
        partitioner: Any = None,
        max_request_size: int = 1048576,
        linger_ms: float = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        if loop is not None:
            warnings.warn("loop has no effect: the running loop is used", DeprecationWarning, stacklevel=2)
        self._options = options.engine_options(given)
        self._max_batch_size = max_batch_size
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        if partitioner is not None and not type(partitioner).__module__.startswith("aiokafka"):
            self._options["partitioner"] = options.Partitioner(partitioner)
        self._engine: AsyncProducer | None = None
        self._closed = False
        self._is_in_transaction = False
        self._outcomes: Outcomes | None = None
        self._given_partitioner = partitioner
        self._client = Client(given, self.partitions_for)
        self._sender = Sender()

    @property
    def client(self) -> Client:
        """Addresses, client id, metadata and requests, as frameworks and instrumentation use them."""
        return self._client

    @property
    def _metadata(self) -> Any:
        """The cluster's metadata; kstreams and others look at it there."""
        return self._client.cluster

    @property
    def _partitioner(self) -> Any:
        """What chooses partitions: f(key_bytes, all_partitions, available_partitions)."""
        if self._given_partitioner is None:
            self._given_partitioner = original("aiokafka.partitioner", "DefaultPartitioner", __name__)()
        return self._given_partitioner

    def _partition(
        self, topic: str, partition: int | None, key: Any, value: Any, key_bytes: Any, value_bytes: Any
    ) -> int | None:
        """Return the partition of a record; None: it has no key, and gets its partition when it is sent."""
        if partition is not None or key_bytes is None:
            return partition
        everywhere = sorted(self._client.cluster.partitions_for_topic(topic) or ())
        if not everywhere:
            return None
        chosen: int = self._partitioner(key_bytes, everywhere, everywhere)
        return chosen

    # -- beginning and end ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: No bootstrap server can be used; names each with the stage reached and the cause.
            AuthenticationFailedError: The login was refused.
        """
        if self._closed:
            raise ProducerClosed("the producer was stopped: make a new one")
        if self._engine is not None:
            return
        with _theirs():
            engine = AsyncProducer(self._options)
            try:
                await engine.start(min(self._options["request_timeout_ms"] / 1000, _START_S))
                if self._options.get("transactional_id") is not None:
                    await engine.init_transactions()
            except BaseException:
                await engine.close(0)
                raise
        self._client.use(engine)
        self._sender.start(engine)
        self._outcomes = Outcomes(asyncio.get_running_loop(), is_unacknowledged=self._options["acks"] == 0)
        self._engine = engine

    async def stop(self) -> None:
        """Deliver what is queued and end. An open transaction is aborted."""
        self._closed = True
        engine, self._engine = self._engine, None
        if engine is None:
            return
        await self._client.stop()
        with _theirs():
            await engine.close()
        self._sender.end()

    async def flush(self) -> None:
        """Send everything queued and wait for the outcomes. Failed records do not raise here: see their futures."""
        with _theirs():
            try:
                await self._running().flush()
            except ours.DeliveryFailedError as error:
                logger.error("records failed whose futures were not read: %s", error)

    def _running(self) -> AsyncProducer:
        if self._engine is None:
            raise ProducerClosed("the producer is not started" if not self._closed else "the producer was stopped")
        return self._engine

    # -- sending -------------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record; await the returned future for its RecordMetadata.

        Args:
            topic: Its name.
            value, key: Bytes, or what the serializers take; one of them may be None.
            partition: None: the partitioner chooses.
            timestamp_ms: ms since the epoch; None: now.
            headers: Pairs of text and bytes.

        Raises:
            KafkaTimeoutError: No metadata of the topic, or no memory, within request_timeout_ms.
            MessageSizeTooLargeError: The record exceeds max_request_size.
            AssertionError: Key and value are None, or the topic has no such partition.
        """
        assert value is not None or key is not None, "Need at least one: key or value"
        engine = self._running()
        key, value = self._both_serialized(key, value)
        with _theirs():
            if partition is not None:
                assert partition >= 0
                assert partition in await engine.partitions_for(topic), "Unrecognized partition"
            delivery = await engine.send(topic, value, key, list(headers) if headers else None, partition, timestamp_ms)
        assert self._outcomes is not None
        return self._outcomes.future_of(delivery)

    def _both_serialized(self, key: Any, value: Any) -> tuple[Any, Any]:
        key = key if self._key_serializer is None else self._key_serializer(key)
        value = value if self._value_serializer is None else self._value_serializer(value)
        for data in (key, value):
            if not isinstance(data, bytes | bytearray | memoryview | None):
                raise TypeError(f"keys and values are bytes here, not {type(data).__name__}: give a serializer")
        return key, value

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> RecordMetadata:
        """Send one record and wait for its outcome. Raises the record's own error."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch, to be filled and given to send_batch()."""
        return BatchBuilder(self._max_batch_size, self._key_serializer, self._value_serializer)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None = None
    ) -> asyncio.Future[RecordMetadata]:
        """Queue the records of a batch for one partition; the future has the metadata of the first one.

        Args:
            batch: From create_batch(); takes no more records.
            topic: Its name.
            partition: None: one at random, for all of them.

        Raises:
            AssertionError: The topic has no such partition.
        """
        engine = self._running()
        batch.close()
        with _theirs():
            partitions = await engine.partitions_for(topic)
            if partition is None:
                partition = random.choice(sorted(partitions))
            assert partition in partitions, "Unrecognized partition"
            result = await engine.send_many(
                topic, batch.values, batch.keys, batch.headers, batch.timestamps_ms, partition=partition
            )
        assert self._outcomes is not None
        return self._outcomes.future_of_batch(result, TopicPartition(topic, partition), batch.timestamps_ms)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partitions."""
        with _theirs():
            return await self._running().partitions_for(topic)

    # -- transactions --------------------------------------------------------------------------------------------------

    async def begin_transaction(self) -> None:
        """Open a transaction."""
        with _theirs():
            self._transactional().begin_transaction()
        self._is_in_transaction = True

    async def commit_transaction(self) -> None:
        """Deliver everything of the transaction and commit it."""
        with _theirs():
            await self._transactional().commit_transaction()
        self._is_in_transaction = False

    async def abort_transaction(self) -> None:
        """Drop or void everything of the transaction."""
        with _theirs():
            await self._transactional().abort_transaction()
        self._is_in_transaction = False

    async def send_offsets_to_transaction(self, offsets: Any, group_id: str) -> None:
        """Commit offsets of the input together with the transaction.

        Args:
            offsets: TopicPartition -> offset, (offset, metadata) or OffsetAndMetadata.
            group_id: The group's id.
        """
        engine = self._transactional()
        if not self._is_in_transaction:
            raise IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        with _theirs():
            await engine.send_offsets_to_transaction(offsets, group_id)

    def transaction(self) -> TransactionContext:
        """Return the block of a transaction: it commits at the end, and aborts if the block raises."""
        return TransactionContext(self)

    def write(self, write_id: str, verify: Any = "content", parts: int | bool = False) -> AsyncOnceWrite:
        """Return the block of a write that happens once, however often it is run; aiokafka has no such call.

        async with producer.write("orders-2026-11-28") as write:
            await write.send("orders", b"value", b"key")

        Its records have no futures: their outcome is that of the block.

        Args:
            write_id, verify, parts: As for kafkaprod.AsyncProducer.transaction().
        """
        with _theirs():
            block = self._running().transaction(write_id=write_id, verify=verify, parts=parts)
        return AsyncOnceWrite(block, _theirs, self._row)

    def _row(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Row:
        """Return the row of a write for arguments of send()."""
        assert value is not None or key is not None, "Need at least one: key or value"
        key, value = self._both_serialized(key, value)
        return Row(topic, value, key, list(headers) if headers else None, partition, timestamp_ms, partition)

    def _transactional(self) -> AsyncProducer:
        if self._options.get("transactional_id") is None:
            raise IllegalOperation("You need to configure transaction_id to use transactions")
        return self._running()

    def __del__(self) -> None:
        if getattr(self, "_engine", None) is not None:
            warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self, stacklevel=2)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class Sender:
    """`_sender`, of which health checks look at the task: it ends with the producer."""

    def __init__(self) -> None:
        self._engine: AsyncProducer | None = None
        self._task: asyncio.Future[None] | None = None

    def start(self, engine: AsyncProducer) -> None:
        """Begin with a started producer."""
        self._engine = engine
        self._task = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """Note that the producer has ended."""
        if self._task is not None and not self._task.done():
            self._task.set_result(None)

    @property
    def sender_task(self) -> asyncio.Future[None] | None:
        """Done when the producer has ended; None: it was not started."""
        if self._engine is not None and self._engine._has_ended:
            self.end()
        return self._task

    @property
    def _sender_task(self) -> asyncio.Future[None] | None:
        """The same, by its name in aiokafka's own tests and in older releases."""
        return self.sender_task


class TransactionContext:
    """`async with producer.transaction():`."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._producer.commit_transaction()
            return
        with contextlib.suppress(IllegalOperation):  # the block has ended the transaction by itself
            await self._producer.abort_transaction()
