"""AsyncProducer: the producer's verbs for asyncio, on the same engine and the same sender thread.

Sending stays on the event loop: a record that finds no memory waits in the same line as those of threads, and one that
is cancelled before it got there is not sent. Waiting for metadata, a flush or the end is done in a worker thread of the
loop's default executor, and so are blocks of records. An event loop is told once per batch, not once per record.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kafkaprod.block_result import BlockResult
from kafkaprod.completion import DeliveryFuture
from kafkaprod.interceptors import ProducerRecord
from kafkaprod.producer import MEMORY_POLL_S, Producer
from kafkaprod.structs import RecordMetadata
from kafkaprod.tables import TableResult

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

        Waits, without blocking the event loop, for metadata and memory up to max_block_ms. Cancelled while it waits, it
        has queued nothing.
        """
        producer = self._producer
        future = producer.try_send(topic, value, key, headers, partition, timestamp_ms)
        if future is not None:
            return future
        producer._check_usable()
        record = producer._hooks.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            future = await self._append(record)
        except Exception as error:
            producer._hooks.on_refused(record.topic, record.partition, error)
            raise
        producer._hooks.watch(future)
        return future

    async def _append(self, record: ProducerRecord) -> DeliveryFuture:
        producer = self._producer
        deadline_ms = producer._clock.now_ms() + producer.config.max_block_ms
        find = partial(producer._topic_queues, record.topic, deadline_ms, record.partition)
        is_known = record.topic in producer.accumulator.topics and record.partition is None
        append, need = producer._prepare(record, find() if is_known else await self._in_thread(find))
        future = append(0)
        if future is not None:
            return future
        if producer.config.buffer_full_policy == "raise":
            raise producer._buffer_full(record.topic, 0)
        return await self._append_with_memory(append, need(), deadline_ms, record.topic)

    async def _append_with_memory(
        self, append: Callable[[int], DeliveryFuture | None], need: int, deadline_ms: int, topic: str
    ) -> DeliveryFuture:
        """Wait in line for memory; see Producer._with_memory."""
        producer, loop, told = self._producer, asyncio.get_running_loop(), asyncio.Event()
        pool = producer.accumulator.pool

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(told.set)

        started_ns = time.perf_counter_ns()
        ticket = pool.enqueue_waiter(need, wake)
        try:
            producer._engine.sender.wakeup()
            while True:
                future = append(ticket)
                if future is not None:
                    return future
                remaining_ms = deadline_ms - producer._clock.now_ms()
                if remaining_ms <= 0:
                    raise producer._buffer_full(topic, producer.config.max_block_ms)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), min(remaining_ms / 1000, MEMORY_POLL_S))
                told.clear()
                producer._check_usable()
        finally:
            pool.dequeue_waiter(ticket)
            producer._engine.metrics.add_memory_wait(time.perf_counter_ns() - started_ns, producer._clock.now_ms())

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

    async def send_table(self, topic: str | None, data: Any, **kwargs: Any) -> TableResult:
        """Producer.send_table; await the result for the outcome of all rows."""
        return await self._in_thread(partial(self._producer.send_table, topic, data, **kwargs))

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
