"""Programs written for confluent-kafka's AIOProducer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import confluent_kafka.aio
import pytest

from kafkaprod.compat.confluent_kafka import KafkaError, KafkaException
from kafkaprod.compat.confluent_kafka import aio as compat
from kafkaprod.compat.confluent_kafka.aio import AIOProducer
from tests.kafka.ports import free_ports

Read = Callable[[str, int], list[Any]]


async def test_futures_get_messages_by_themselves(servers: str, topic: str, read: Read) -> None:
    async with AIOProducer({"bootstrap.servers": servers}, max_workers=2, batch_size=10) as producer:
        futures = [await producer.produce(topic, f"v{number}", key=b"k", headers={"h": "1"}) for number in range(10)]
        messages = await asyncio.gather(*futures)
        assert await producer.flush() == len(producer) == 0
    assert [message.value() for message in messages] == [b"v%d" % number for number in range(10)]
    assert [message.offset() for message in messages] == list(range(10))
    assert {message.partition() for message in messages} == {messages[0].partition()}
    assert (messages[0].topic(), messages[0].error(), messages[0].key()) == (topic, None, b"k")
    assert (messages[0].latency() or -1) > 0
    records = await asyncio.to_thread(read, topic, 10)
    assert records[0].headers() == [("h", b"1")]
    assert records[0].partition() == messages[0].partition()


async def test_errors_are_kafka_exceptions(servers: str, topic: str) -> None:
    async with AIOProducer({"bootstrap.servers": servers, "message.max.bytes": 5000}) as producer:
        with pytest.raises(KafkaException) as caught:
            await producer.produce(topic, b"x" * 10_000)
        assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        with pytest.raises(KafkaException) as caught:
            await producer.produce(topic, b"x", partition=99)
        assert caught.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
        with pytest.raises(TypeError):
            await producer.produce(topic, 1)  # type: ignore[arg-type]
        future = await producer.produce(topic, b"x")
        await producer.purge()
        with pytest.raises(KafkaException):
            await future
    with pytest.raises(KafkaException):
        await producer.produce(topic, b"x")
    (port,) = free_ports(1)
    lost = AIOProducer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 300})
    with pytest.raises(KafkaException):
        await lost.produce(topic, b"v")
    await lost.close()


async def test_transactions_commit_and_abort(servers: str, topic: str, read: Read) -> None:
    producer = AIOProducer({"bootstrap.servers": servers, "transactional.id": topic})
    await producer.init_transactions()
    for value, is_kept in ((b"aborted", False), (b"kept", True)):
        await producer.begin_transaction()
        await producer.produce(topic, value)
        await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    await producer.close()
    await producer.close()
    assert [record.value() for record in await asyncio.to_thread(read, topic, 1)] == [b"kept"]


async def test_topics_are_listed_and_callbacks_that_are_never_called_named(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with AIOProducer({"bootstrap.servers": servers, "error_cb": print}) as producer:
        await (await producer.produce(topic, b"v"))
        assert topic in (await producer.list_topics(topic, 10)).topics
        assert await producer.cluster_id(10)
        assert await producer.poll(0) == 0
    assert "error_cb is never called by AIOProducer" in caplog.text


def test_every_public_name_of_the_original_is_there() -> None:
    original = confluent_kafka.aio.AIOProducer
    assert {name for name in dir(original) if not name.startswith("_")} <= set(dir(AIOProducer))
    parameters = inspect.signature(original).parameters
    assert list(inspect.signature(AIOProducer).parameters) == list(parameters)
    assert compat.AIOConsumer is confluent_kafka.aio.AIOConsumer
