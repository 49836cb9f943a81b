"""AsyncProducer: the producer's verbs for asyncio, on the same engine and the same sender thread.

A record whose topic is known and for which there is memory is queued without leaving the event loop; waiting (for
memory, metadata, a flush, the end) is done in a worker thread, in the same line as everybody else. An event loop is
told once per batch, not once per record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kafkaprod.completion import BlockResult, DeliveryFuture
from kafkaprod.producer import Producer
from kafkaprod.structs import RecordMetadata

T = TypeVar("T")


class AsyncProducer:
    """Sends records to Apache Kafka from asyncio.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("orders", b"value")

    Options, errors and promises are those of `Producer`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        self._producer = Producer(config, **options)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture:
        """Queue one record; await the returned future for its RecordMetadata. Arguments and errors as Producer.send.

        Waits, without blocking the event loop, for metadata and memory up to max_block_ms.
        """
        future = self._producer.try_send(topic, value, key, headers, partition, timestamp_ms)
        if future is not None:
            return future
        return await self._in_thread(partial(self._producer.send, topic, value, key, headers, partition, timestamp_ms))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its outcome. Raises the record's own error."""
        metadata: RecordMetadata = await (await self.send(topic, value, key, headers, partition, timestamp_ms))
        return metadata

    async def send_many(self, topic: str, *args: Any, **kwargs: Any) -> BlockResult:
        """Producer.send_many; await the result for the outcome of all rows."""
        return await self._in_thread(partial(self._producer.send_many, topic, *args, **kwargs))

    async def send_columns(self, topic: str, *args: Any, **kwargs: Any) -> BlockResult:
        """Producer.send_columns; await the result for the outcome of all rows."""
        return await self._in_thread(partial(self._producer.send_columns, topic, *args, **kwargs))

    async def flush(self, timeout: float | None = None) -> None:
        """Producer.flush without blocking the event loop."""
        await self._in_thread(partial(self._producer.flush, timeout))

    async def close(self, timeout: float | None = None) -> None:
        """Producer.close without blocking the event loop."""
        await self._in_thread(partial(self._producer.close, timeout))

    async def partitions_for(self, topic: str) -> set[int]:
        """Producer.partitions_for without blocking the event loop."""
        return await self._in_thread(partial(self._producer.partitions_for, topic))

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Producer.metrics()."""
        return self._producer.metrics()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._in_thread(partial(self._producer.__exit__, kind, error, trace))

    @staticmethod
    async def _in_thread(call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call)
