"""AsyncProducer: the producer's verbs for asyncio, on the same engine and the same sender thread.

All waiting is done on the event loop, woken by the sender thread: a record that finds no memory waits in the same line
as those of threads, and one that is cancelled before it got there is not sent. Only blocks of records, which take long
to copy, have a thread each; it is a daemon, so that a program interrupted while they wait can end. An event loop is
told once per batch, not once per record.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kafkaprod._core.queues.accumulator import TopicQueues
from kafkaprod.hooks.interceptors import ProducerRecord
from kafkaprod.producer import CLOSE_GRACE_S, MEMORY_POLL_S, Producer, _patience_after
from kafkaprod.results.batch import DeliveryFuture
from kafkaprod.results.block import BlockResult
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
        append, need = producer._prepare(record, await self._topic_queues(record.topic, deadline_ms, record.partition))
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
        producer, told = self._producer, _LoopWaiter()
        pool = producer.accumulator.pool
        started_ns = time.perf_counter_ns()
        ticket = pool.enqueue_waiter(need, told.wake)
        try:
            producer._engine.sender.wakeup()
            while True:
                future = append(ticket)
                if future is not None:
                    return future
                remaining_ms = deadline_ms - producer._clock.now_ms()
                if remaining_ms <= 0:
                    raise producer._buffer_full(topic, producer.config.max_block_ms)
                await told.wait(min(remaining_ms / 1000, MEMORY_POLL_S))
                producer._check_usable()
        finally:
            pool.dequeue_waiter(ticket)
            producer._engine.metrics.add_memory_wait(time.perf_counter_ns() - started_ns, producer._clock.now_ms())

    async def _topic_queues(self, topic: str, deadline_ms: int, partition: int | None = None) -> TopicQueues:
        """See Producer._topic_queues."""
        queues = self._producer._known_queues(topic, partition)
        if queues is not None:
            return queues
        watch, told = self._producer._engine.topic_watch, _LoopWaiter()
        with watch.waiter(topic, partition, told.wake) as waiter:
            while (queues := watch.look(waiter, deadline_ms, self._producer._check_usable)) is None:
                await told.wait(watch.patience_s(deadline_ms))
        return queues

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
        """Producer.send_many; await the result for the outcome of all rows. Cancelled, it may queue them yet."""
        return await _in_thread(partial(self._producer.send_many, topic, *args, **kwargs))

    async def send_columns(self, topic: str, *args: Any, **kwargs: Any) -> BlockResult:
        """Producer.send_columns; as `send_many`."""
        return await _in_thread(partial(self._producer.send_columns, topic, *args, **kwargs))

    async def send_table(self, topic: str | None, data: Any, **kwargs: Any) -> TableResult:
        """Producer.send_table; as `send_many`."""
        return await _in_thread(partial(self._producer.send_table, topic, data, **kwargs))

    async def flush(self, timeout: float | None = None) -> None:
        """Producer.flush without blocking the event loop."""
        producer = self._producer
        producer._check_usable()
        if producer.accumulator.untold_batch_count > 0:
            told = _LoopWaiter()
            with producer._flushing(told.wake):
                if not await told.wait(timeout):
                    raise producer._flush_timed_out(timeout)
        producer._raise_unseen_failures()

    async def close(self, timeout: float | None = None) -> None:
        """Producer.close without blocking the event loop."""
        producer = self._producer
        if not producer._begin_close(timeout):
            return
        told = _LoopWaiter()
        with producer._engine.end_waiter(told.wake):
            limit_s = None if timeout is None else max(timeout, 0) + CLOSE_GRACE_S
            if not producer._engine.is_ended and not await told.wait(limit_s):
                raise producer._close_timed_out(timeout)

    async def partitions_for(self, topic: str) -> set[int]:
        """Producer.partitions_for without blocking the event loop."""
        self._producer._check_usable()
        deadline_ms = self._producer._clock.now_ms() + self._producer.config.max_block_ms
        return set(range((await self._topic_queues(topic, deadline_ms)).partition_count))

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Producer.metrics()."""
        return self._producer.metrics()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._producer._refusal is None:
            try:
                await self.flush()
            except BaseException as failure:
                await self.close(_patience_after(failure))
                raise
        await self.close(_patience_after(error))


class _LoopWaiter:
    """A task's wait for something another thread does. A wake that comes first is not lost."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Make the current or next `wait` return True. Never blocks; thread-safe."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake`, at most `timeout` seconds; return whether it came. Uses it up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # not wait_for(): until 3.12 it could lose a cancellation
                await self._event.wait()
        is_told = self._event.is_set()
        self._event.clear()
        return is_told


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call that may wait in a daemon thread.

    Not in the loop's executor: it has few threads, which others need, and a program cannot end while one of them waits.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(settled: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():  # else the task was cancelled
            settled(outcome)

    def run() -> None:
        try:
            result = partial(settle, future.set_result, call())
        except BaseException as error:
            result = partial(settle, future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(result)

    threading.Thread(target=run, name="kafkaprod-block", daemon=True).start()
    return await future
