"""AsyncProducer against a sink process: it waits on the event loop, and what is cancelled is not sent."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.sink import Sink
from kafkaprod._core.queues.accumulator import memory_holders
from kafkaprod.aio import AsyncProducer
from kafkaprod.errors import BufferFullError, DeliveryFailedError, InvalidRecordError, ProducerClosedError
from kafkaprod.hooks.interceptors import Interceptor, ProducerRecord


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink({"t": 2}) as sink:
        yield sink


@pytest.fixture(autouse=True)
def running(sink: Sink) -> Iterator[None]:
    sink.reset()
    yield
    os.kill(sink.pid, signal.SIGCONT)


class Notes(Interceptor):
    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.outcomes: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        self.outcomes.append(error)


async def stalled(sink: Sink, **options: Any) -> AsyncProducer:
    """A producer whose buffer is full and whose broker is stopped."""
    producer = AsyncProducer(bootstrap_servers=sink.bootstrap, buffer_memory=256 << 10, batch_size=16384, **options)
    await producer.send_and_wait("t", b"first")
    async with asyncio.timeout(10):
        while producer._engine.accumulator.pool.in_use:  # comes back a moment after the outcome
            await asyncio.sleep(0)
    os.kill(sink.pid, signal.SIGSTOP)
    while producer._path.try_send("t", b"x" * 15_000) is not None:
        pass
    return producer


async def waiting(producer: AsyncProducer, count: int) -> None:
    async with asyncio.timeout(10):
        while producer._engine.accumulator.pool.waiter_count != count:
            await asyncio.sleep(0)


async def test_records_are_sent_and_awaited(sink: Sink) -> None:
    async with AsyncProducer(bootstrap_servers=sink.bootstrap) as producer:
        metadata = await producer.send_and_wait("t", b"v", partition=1)
        assert metadata.partition == 1
        futures = [await producer.send("t", b"v") for _ in range(100)]
        assert {(await future).topic for future in futures} == {"t"}
        block = await producer.send_many("t", [b"a", b"b"])
        assert (await block).failed_count == 0
        await producer.flush()
        assert await producer.partitions_for("t") == {0, 1}
    assert sink.counts().records == 103


async def test_records_with_hooks_do_not_leave_the_loop(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    producer = AsyncProducer(
        bootstrap_servers=sink.bootstrap, value_serializer=lambda value: value.encode(), interceptors=[notes]
    )
    monkeypatch.delattr(threading.Thread, "start")  # that of the sender is the last one
    async with producer:
        await producer.send_and_wait("t", "first")
        futures = [await producer.send("t", "text") for _ in range(10)]
        for future in futures:
            await future
        soon: Any = "soon"
        with pytest.raises(InvalidRecordError):
            await producer.send("t", "text", timestamp_ms=soon)
        assert await producer.partitions_for("t") == {0, 1}
        await producer.flush()
    assert len(notes.sent) == 12
    assert [error is None for error in notes.outcomes].count(False) == 1


async def test_full_buffer_is_waited_for_in_line(sink: Sink) -> None:
    producer = await stalled(sink)
    task = asyncio.create_task(producer.send("t", b"y" * 15_000))
    await waiting(producer, 1)
    assert not task.done()
    os.kill(sink.pid, signal.SIGCONT)
    assert (await (await task)).offset >= 0
    await producer.close()
    assert producer._engine.accumulator.pool.in_use == 0


async def test_cancelled_send_is_not_sent_and_leaves_the_line(sink: Sink) -> None:
    producer = await stalled(sink)
    tasks = [asyncio.create_task(producer.send("t", b"never" * 3000)) for _ in range(20)]
    await waiting(producer, 20)
    for task in tasks[:19]:
        task.cancel()
    await asyncio.gather(*tasks[:19], return_exceptions=True)
    assert producer._engine.accumulator.pool.waiter_count == 1
    sent_before = 1 + sum(batches for *_, batches in memory_holders(producer._engine.accumulator))
    os.kill(sink.pid, signal.SIGCONT)
    await (await tasks[19])
    await producer.close()
    assert sink.counts().records == sent_before + 1
    assert producer._engine.accumulator.pool.waiter_count == 0


async def test_full_buffer_raises_after_max_block_ms_or_at_once(sink: Sink) -> None:
    producer = await stalled(sink, max_block_ms=1000)  # which is also the limit for connecting and metadata
    with pytest.raises(BufferFullError, match="max_block_ms=1000"):
        await producer.send("t", b"y" * 15_000)
    os.kill(sink.pid, signal.SIGCONT)
    await producer.close()
    producer = await stalled(sink, buffer_full_policy="raise")
    with pytest.raises(BufferFullError):
        await producer.send("t", b"y" * 15_000)
    os.kill(sink.pid, signal.SIGCONT)
    await producer.close()


async def test_close_ends_those_who_wait_for_memory(sink: Sink) -> None:
    producer = await stalled(sink)
    task = asyncio.create_task(producer.send("t", b"y" * 15_000))
    await waiting(producer, 1)
    await producer.close(0)
    with pytest.raises(ProducerClosedError):
        await task
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"v")


async def test_cancelled_wait_for_a_record_leaves_the_others_waiting(sink: Sink) -> None:
    async with AsyncProducer(bootstrap_servers=sink.bootstrap, linger_ms=100) as producer:
        await producer.partitions_for("t")
        futures = [await producer.send("t", b"v", partition=0) for _ in range(2)]

        async def outcome(future: object) -> object:
            return await future  # type: ignore[misc]

        first, second = (asyncio.create_task(outcome(future)) for future in futures)
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()
        assert futures[0].succeeded()


async def test_tasks_that_wait_for_a_batch_are_woken_together(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[object] = []
    async with AsyncProducer(bootstrap_servers=sink.bootstrap, linger_ms=100) as producer:
        await producer.partitions_for("t")
        futures = [await producer.send("t", b"v", partition=0) for _ in range(50)]
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def count(callback: Any, *arguments: Any, **options: Any) -> asyncio.Handle:
            woken.append(callback)
            return call(callback, *arguments, **options)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        waits = [asyncio.ensure_future(future) for future in futures]
        assert {(await wait).partition for wait in waits} == {0}
        assert len(woken) == 1
        monkeypatch.undo()


def test_records_can_be_awaited_from_several_loops(sink: Sink) -> None:
    async def run() -> int:
        async with AsyncProducer(bootstrap_servers=sink.bootstrap) as producer:
            return (await producer.send_and_wait("t", b"v")).partition

    assert {asyncio.run(run()) for _ in range(3)} <= {0, 1}


async def test_block_whose_flush_fails_closes_its_producer(sink: Sink) -> None:
    producer = await stalled(sink, request_timeout_ms=1000, delivery_timeout_ms=2000)
    with pytest.raises(DeliveryFailedError):
        async with producer:
            pass
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"late")
