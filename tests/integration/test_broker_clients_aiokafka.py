"""aiokafka as a real client of the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.broker.fixtures_broker import PATIENCE_S

OpenConsumer = Callable[[], Awaitable[AIOKafkaConsumer]]


@pytest.fixture
async def open_consumer(embedded_broker: EmbeddedBroker, topic_name: str) -> AsyncIterator[OpenConsumer]:
    """Open members of one group; all are stopped at the end."""
    consumers: list[AIOKafkaConsumer] = []

    async def open_one() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic_name,
            bootstrap_servers=embedded_broker.bootstrap_servers,
            group_id=f"group-of-{topic_name}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        consumers.append(consumer)
        await consumer.start()
        return consumer

    yield open_one
    for consumer in consumers:
        await consumer.stop()


async def produce(broker: EmbeddedBroker, topic: str, values: range, *, is_idempotent: bool = False) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", enable_idempotence=is_idempotent
    ) as producer:
        sent = [await producer.send(topic, b"%d" % value, partition=value % 3) for value in values]
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)


async def has_committed(member: AIOKafkaConsumer, offset: int) -> bool:
    """True once the member itself has read its partitions up to the offset, and committed that.

    What an earlier owner has read does not count: a position is not handed over in a rebalance.
    """
    try:
        if {await member.position(partition) for partition in member.assignment()} != {offset}:
            return False
        await member.commit()
    except (IllegalStateError, CommitFailedError):  # a rebalance came in between
        return False
    return True


async def collect_until(consumers: list[AIOKafkaConsumer], values: list[int], condition: Callable[[], bool]) -> None:
    """Poll all consumers, at least once, until the condition holds."""

    async def poll() -> None:
        while True:
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    values.extend(int(record.value) for record in records)
            if condition():
                return

    await asyncio.wait_for(poll(), PATIENCE_S)


def share_sizes(consumers: list[AIOKafkaConsumer]) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


async def test_three_aiokafka_members_share_the_partitions_rebalance_and_resume(
    embedded_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    await produce(embedded_broker, topic_name, range(300))
    members = [await open_consumer() for _ in range(3)]
    seen: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await collect_until(members, seen, lambda: share_sizes(members) == [1, 1, 1])
            if all([await has_committed(member, 100) for member in members]):
                break
    assert set(seen) == set(range(300))

    await members.pop().stop()
    await collect_until(members, [], lambda: share_sizes(members) == [1, 2])
    for member in members:
        await member.stop()

    await produce(embedded_broker, topic_name, range(300, 330))
    resumed = await open_consumer()
    later: list[int] = []
    await collect_until([resumed], later, lambda: len(later) >= 30)
    assert sorted(later) == list(range(300, 330))
    assert [await resumed.committed(TopicPartition(topic_name, index)) for index in range(3)] == [100, 100, 100]


async def test_idempotent_aiokafka_producer_is_read_back_in_order(
    embedded_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    await produce(embedded_broker, topic_name, range(300), is_idempotent=True)
    consumer = await open_consumer()
    seen: list[int] = []
    await collect_until([consumer], seen, lambda: len(seen) >= 300)
    assert [value for value in seen if value % 3 == 1] == list(range(1, 300, 3))
