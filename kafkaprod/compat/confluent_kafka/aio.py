"""confluent-kafka's `confluent_kafka.aio`: AIOProducer over `kafkaprod.AsyncProducer`; the rest is the original's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Self

from kafkaprod import AsyncProducer, DeliveryFuture
from kafkaprod import errors as ours
from kafkaprod.clock import monotonic_s
from kafkaprod.compat.confluent_kafka.arguments import encoded, limit, pairs
from kafkaprod.compat.confluent_kafka.codes import CODES
from kafkaprod.compat.confluent_kafka.error import KafkaError, KafkaException, record_error, theirs
from kafkaprod.compat.confluent_kafka.message import TIMESTAMP_CREATE_TIME, Message
from kafkaprod.compat.confluent_kafka.metadata import METADATA_S, ClusterMetadata, cluster_metadata
from kafkaprod.compat.confluent_kafka.options import read
from kafkaprod.compat.originals import original
from kafkaprod.text import printable

__all__ = ["AIOProducer"]

logger = logging.getLogger(__name__)


class AIOProducer:
    """Sends records to Kafka from asyncio, with the interface of confluent-kafka's AIOProducer. For one event loop.

    Headers are sent, too. There is no duty to poll: futures get their outcomes by themselves.

    Args:
        producer_conf: librdkafka's options; `error_cb`, `stats_cb` and `on_delivery` are never called.
        max_workers, executor, batch_size, buffer_timeout: Have no effect: there are no worker threads, and records are
            not gathered before they are queued.

    Raises:
        KafkaException: With _INVALID_ARG: an option is unknown, has a wrong value, or is not offered.
    """

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        self._settings = settings = read(producer_conf)
        settings.engine["buffer.full.policy"] = "block"  # produce() waits for memory, without blocking the event loop
        with theirs():
            self._engine = AsyncProducer(settings.engine)
        self._under_way = 0
        self._is_closed = False
        unserved = [name for name in ("error_cb", "stats_cb", "on_delivery") if getattr(settings, name) is not None]
        for text in (*settings.ignored, *(f"{name} is never called by AIOProducer" for name in unserved)):
            logger.warning("%s", printable(text))

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> asyncio.Future[Message]:
        """Queue one record; await the returned future for its Message.

        Waits for the topic's metadata and for memory, up to message.timeout.ms.

        Args:
            topic: Its name.
            value, key: Bytes, or text, which is encoded as UTF-8.
            partition: -1: the partitioner chooses.
            timestamp: ms since the epoch; 0: now.
            headers: A dict, or a list of pairs; values are bytes, text or None.

        Raises:
            KafkaException: The record is too large, the partition unknown, the producer closed, or no metadata came.
            TypeError: An argument has a wrong type.
        """
        record = topic, encoded(key), encoded(value), pairs(headers)
        started = monotonic_s()
        with theirs():
            delivery = await self._engine.send(
                topic,
                record[2],
                record[1],
                record[3],
                await self._choose(topic, record[1], partition),
                timestamp or None,
            )
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._under_way += 1

        def settle(delivery: DeliveryFuture) -> None:
            self._under_way -= 1
            if future.done():  # the program has cancelled it
                return
            error = delivery.exception(0)
            if error is None:
                future.set_result(_message(record, delivery, monotonic_s() - started))
            else:
                failure = KafkaException(record_error(error))
                failure.__cause__ = error
                future.set_exception(failure)

        delivery.add_done_callback(settle)
        return future

    async def _choose(self, topic: str, key: Any, partition: int) -> int | None:
        """Return the partition; None: the engine chooses."""
        choose = self._settings.choose
        if partition < 0 and choose is None:
            return None
        count = len(await self._engine.partitions_for(topic))
        if partition < 0 and choose is not None:
            return choose(key, count)
        if partition >= count:
            raise KafkaException(KafkaError(CODES["_UNKNOWN_PARTITION"]))
        return partition

    async def poll(self, timeout: float = 0) -> int:
        """Let the event loop run once. Returns 0: there are no callbacks to serve."""
        await asyncio.sleep(0)
        return 0

    async def flush(self, timeout: float = -1) -> int:
        """Send everything queued; return how many records have no outcome.

        Args:
            timeout: Seconds; -1: as long as it takes, which message.timeout.ms bounds.
        """
        with theirs(), contextlib.suppress(TimeoutError, ours.DeliveryFailedError):  # failures are in the futures
            await self._engine.flush(limit(timeout))
        return self._under_way

    async def close(self) -> None:
        """Abort an open transaction, deliver what is queued, and end."""
        if self._is_closed:
            return
        self._is_closed = True
        with theirs(), contextlib.suppress(ours.DeliveryFailedError):
            await self._engine.close()

    def __len__(self) -> int:
        """Records without an outcome."""
        return self._under_way

    def __bool__(self) -> bool:
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Fail records without an outcome: those that wait to be sent, those in requests without an answer."""
        with theirs():
            await self._engine.purge(in_queue=in_queue, in_flight=in_flight)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return brokers and topics; as Producer.list_topics."""
        with theirs():
            return cluster_metadata(await self._engine.list_topics(topic, timeout if timeout > 0 else METADATA_S))

    async def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        with theirs():
            return (await self._engine.list_topics([], timeout if timeout > 0 else METADATA_S)).cluster_id

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Take a user name and a password for the next logins."""
        with theirs():
            self._engine.set_sasl_credentials(username, password)

    # -- transactions --------------------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float = -1) -> None:
        """Get ready for transactions. `timeout` in seconds, -1: max_block_ms; the same below."""
        with theirs():
            await self._engine.init_transactions(limit(timeout))

    async def begin_transaction(self) -> None:
        """Open a transaction."""
        with theirs():
            self._engine.begin_transaction()

    async def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1) -> None:
        """Commit offsets of the input together with the transaction."""
        with theirs():
            await self._engine.send_offsets_to_transaction(positions, group_metadata, limit(timeout))

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Deliver everything of the transaction and commit it."""
        with theirs():
            await self._engine.commit_transaction(limit(timeout))

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Drop or void everything of the transaction."""
        with theirs():
            await self._engine.abort_transaction(limit(timeout))


def _message(record: tuple[str, Any, Any, Any], delivery: DeliveryFuture, latency_s: float) -> Message:
    known = delivery.result(0)
    topic, key, value, headers = record
    kind = TIMESTAMP_CREATE_TIME, known.timestamp
    return Message(topic, known.partition, known.offset, key, value, headers, None, kind, latency_s)


def __getattr__(name: str) -> Any:
    return original("confluent_kafka.aio", name, __name__)
