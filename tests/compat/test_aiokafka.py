"""Programs written for aiokafka, with the import changed and nothing else."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import aiokafka
import aiokafka.errors
import aiokafka.structs
import pytest
from aiokafka.protocol.admin import CreateTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.compat import aiokafka as compat
from kafkaprod.compat.aiokafka import AIOKafkaProducer, errors
from kafkaprod.compat.aiokafka.options import engine_options
from kafkaprod.compat.aiokafka.structs import RecordMetadata, TopicPartition
from tests.kafka.ports import free_ports
from tests.support.compat.standins import without_original

Read = Callable[[str, int], list[Any]]


async def test_a_program_with_start_send_and_wait_and_stop(servers: str, topic: str, read: Read) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, value_serializer=lambda v: json.dumps(v).encode(), acks="all", linger_ms=5
    )
    await producer.start()
    try:
        metadata = await producer.send_and_wait(topic, {"id": 1}, key=b"k", headers=[("h", b"1")], timestamp_ms=1000)
        assert metadata == RecordMetadata(
            topic, metadata.partition, TopicPartition(topic, metadata.partition), 0, 1000, 0, None
        )
    finally:
        await producer.stop()
    (record,) = await asyncio.to_thread(read, topic, 1)
    assert (record.key(), record.value(), record.headers()) == (b"k", b'{"id": 1}', [("h", b"1")])
    with pytest.raises(errors.ProducerClosed):
        await producer.send(topic, {"id": 2})


async def test_futures_are_asyncios(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        futures = [await producer.send(topic, b"%d" % number) for number in range(200)]
        assert all(isinstance(future, asyncio.Future) for future in futures)
        ran: list[Any] = []
        futures[0].add_done_callback(ran.append)
        done, pending = await asyncio.wait(futures, timeout=20)
        assert (len(done), len(pending)) == (200, 0)
        assert ran == [futures[0]]
        assert {future.result().partition for future in futures} <= {0, 1, 2}
        cancelled = await producer.send(topic, b"sent all the same")
        cancelled.cancel()
        await producer.flush()


async def test_the_positional_order_is_theirs(servers: str, topic: str, read: Read) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        metadata = await producer.send_and_wait(topic, b"v", b"k", 2, 1000, [("h", b"1")])
        assert (metadata.partition, metadata.timestamp) == (2, 1000)
    (record,) = await asyncio.to_thread(read, topic, 1)
    assert record.headers() == [("h", b"1")]


async def test_a_cluster_that_cannot_be_reached_is_an_error_of_start() -> None:
    (port,) = free_ports(1)
    producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")
    with pytest.raises(errors.KafkaConnectionError, match=rf"127.0.0.1:{port} \(connect\)"):
        await producer.start()
    await producer.stop()


async def test_records_in_batches_of_the_program(servers: str, topic: str, read: Read) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1000) as producer:
        batch = producer.create_batch()
        while batch.append(timestamp=None, key=None, value=b"x" * 100) is not None:
            pass
        assert batch.closed()
        assert 1 < batch.record_count() <= 9
        assert batch.size() <= 1000
        metadata = await (await producer.send_batch(batch, topic, partition=1))
        assert (metadata.partition, metadata.offset) == (1, 0)
        with pytest.raises(AssertionError, match="Unrecognized partition"):
            await producer.send_batch(producer.create_batch(), topic, partition=9)
        empty = await producer.send_batch(producer.create_batch(), topic, partition=1)
        assert (await empty).offset == -1
    assert len(await asyncio.to_thread(read, topic, batch.record_count())) == batch.record_count()


async def test_a_batch_refuses_a_header_whose_name_is_no_text(servers: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        batch = producer.create_batch()
        with pytest.raises(TypeError, match="the name of a header must be str, not bytes"):
            batch.append(timestamp=None, key=None, value=b"v", headers=[(b"name", b"content")])
        assert batch.record_count() == 0


async def test_a_transaction_commits_and_aborts(servers: str, topic: str, read: Read) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:

        async def fail() -> None:
            async with producer.transaction():
                await producer.send(topic, b"lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with producer.transaction():
            future = await producer.send(topic, b"kept")
        assert (await future).topic == topic
        with pytest.raises(errors.IllegalOperation):
            await producer.send(topic, b"outside")
    assert [record.value() for record in await asyncio.to_thread(read, topic, 1)] == [b"kept"]
    async with AIOKafkaProducer(bootstrap_servers=servers) as plain:
        with pytest.raises(errors.IllegalOperation):
            await plain.begin_transaction()


async def test_errors_of_arguments_and_records(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        with pytest.raises(AssertionError):
            await producer.send(topic)
        with pytest.raises(AssertionError, match="Unrecognized partition"):
            await producer.send(topic, b"v", partition=9)
        with pytest.raises(TypeError):
            await producer.send(topic, "text")
        with pytest.raises(errors.MessageSizeTooLargeError):
            await producer.send(topic, b"v" * 2_000_000)
        assert await producer.partitions_for(topic) == {0, 1, 2}
    with pytest.raises(errors.ProducerClosed):
        await producer.flush()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"acks": 2}, "ACKS"),
        ({"compression_type": "brotli"}, "compression"),
        ({"acks": 1, "enable_idempotence": True}, "not supported"),
        ({"security_protocol": "SSL"}, "ssl_context"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AIOKafkaProducer(**options)


async def test_a_login_with_kerberos_names_the_service_as_there() -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "brokers"}
    given = inspect.signature(AIOKafkaProducer).bind(**login, sasl_kerberos_domain_name="all.example.com")
    given.apply_defaults()
    options = engine_options(given.arguments)
    assert options["sasl_mechanism"] == "GSSAPI"
    assert (options["sasl_kerberos_service_name"], options["sasl_kerberos_domain_name"]) == (
        "brokers",
        "all.example.com",
    )
    given.arguments["security_protocol"] = "PLAINTEXT"
    assert not [name for name in engine_options(given.arguments) if "sasl" in name]


async def test_without_acknowledgements_futures_have_none(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, acks=0) as producer:
        assert await producer.send_and_wait(topic, b"v") is None  # type: ignore[func-returns-value,unused-ignore]


async def test_a_callable_partitioner_chooses(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=servers, partitioner=lambda key, every, available: every[-1]
    ) as producer:
        assert (await producer.send_and_wait(topic, b"v")).partition == 2


def test_every_public_name_option_and_default_of_the_original_is_there() -> None:
    names = {name for name in dir(aiokafka.AIOKafkaProducer) if not name.startswith("_")}
    assert names <= set(dir(AIOKafkaProducer))
    for name in (*names, "__init__"):
        theirs = inspect.signature(getattr(aiokafka.AIOKafkaProducer, name)).parameters
        assert list(inspect.signature(getattr(AIOKafkaProducer, name)).parameters) == list(theirs), name
    theirs = inspect.signature(aiokafka.AIOKafkaProducer).parameters
    ours = inspect.signature(AIOKafkaProducer).parameters
    for name in theirs.keys() - {"acks", "partitioner"}:
        assert ours[name].default == theirs[name].default, name
    assert RecordMetadata._fields == aiokafka.structs.RecordMetadata._fields
    assert compat.AIOKafkaConsumer is aiokafka.AIOKafkaConsumer


def test_without_aiokafka_every_error_is_there_with_its_code() -> None:
    standins = without_original(errors, "aiokafka")
    theirs = {n: c for n, c in vars(aiokafka.errors).items() if inspect.isclass(c) and issubclass(c, Exception)}
    for name, kind in theirs.items():
        ours = getattr(standins, name)
        assert ours is not kind, name
        assert getattr(ours, "errno", None) == getattr(kind, "errno", None), name
        assert getattr(ours, "retriable", None) == getattr(kind, "retriable", None), name
        assert issubclass(ours, standins.KafkaError) == issubclass(kind, aiokafka.errors.KafkaError), name
        assert issubclass(ours, standins.BrokerResponseError) == issubclass(kind, aiokafka.errors.BrokerResponseError)


async def test_what_frameworks_and_instrumentation_look_up_is_there(servers: str, topic: str) -> None:
    not_given = inspect.signature(aiokafka.AIOKafkaProducer).parameters["acks"].default  # FastStream passes it on
    async with AIOKafkaProducer(bootstrap_servers=servers, client_id="me", acks=not_given) as producer:
        assert (producer.client._bootstrap_servers, producer.client._client_id) == (servers, "me")
        assert await producer.client._wait_on_metadata(topic) == {0, 1, 2}
        assert producer._partition(topic, 1, b"k", b"v", b"k", b"v") == 1
        batch = producer.create_batch()
        for value in (b"a", b"b"):
            batch.append(key=None, value=value, timestamp=None)
        first = await (await producer.send_batch(batch, topic))
        assert first.partition in {0, 1, 2}
        assert producer._closed is False
    assert producer._closed is True


async def test_requests_of_a_framework_go_through_aiokafkas_own_client(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        assert await producer.partitions_for(topic) == {0, 1, 2}
        client = producer.client
        assert client._original is None
        (broker,) = client.cluster.brokers()
        assert f"{broker.host}:{broker.port}" == servers
        assert topic in client.cluster.topics()
        assert client.cluster.partitions_for_topic(topic) == client.cluster.available_partitions_for_topic(topic)
        assert client.cluster.partitions_for_topic("none") is None
        answer = await client.send(broker.nodeId, MetadataRequest([]))  # as Faust looks for the controller
        assert answer.controller_id == broker.nodeId
        created = CreateTopicsRequest([(f"{topic}-made", 2, 1, [], [])], 10_000, False)
        assert (await client.send(broker.nodeId, created)).topic_errors[0][1] == 0
        await client.force_metadata_update()
        assert client.cluster.partitions_for_topic(f"{topic}-made") == {0, 1}
        with pytest.raises(AttributeError, match="no attribute 'poll'"):
            client.poll()


async def test_the_partition_of_a_key_is_known_before_it_is_sent(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.partitions_for(topic)
        for number in range(20):
            key = b"key %d" % number
            chosen = producer._partition(topic, None, None, None, key, None)
            assert (await producer.send_and_wait(topic, b"v", key=key)).partition == chosen
        assert producer._partition(topic, 2, None, None, b"k", None) == 2
        assert producer._partition(topic, None, None, None, None, b"v") is None


async def test_the_cluster_knows_a_topic_as_soon_as_it_was_sent_to(servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, b"x")
        assert producer.client.cluster.topics()
        later = f"{topic}-later"
        assert producer._partition(later, None, None, None, b"k", b"v") is None, "nothing is known of it"
        await producer.send_and_wait(later, b"x", key=b"k")
        assert producer.client.cluster.partitions_for_topic(later) == {0, 1, 2}
        assert producer._metadata.available_partitions_for_topic(later) == {0, 1, 2}
        assert later in producer._metadata.topics()
        assert producer._partition(later, None, None, None, b"k", b"v") in {0, 1, 2}


async def test_names_that_frameworks_and_health_checks_look_at(servers: str, topic: str) -> None:
    """kafkaesk and many health endpoints look at the sender's task; kstreams chooses partitions by itself."""
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    assert producer._sender.sender_task is None
    await producer.start()
    await producer.send_and_wait(topic, b"x")
    task = producer._sender.sender_task
    assert task is not None
    assert producer._sender._sender_task is task
    await producer.client.bootstrap()
    assert [f"{host}:{port}" for host, port in producer.client.hosts] == [servers]
    node = producer.client.get_random_node()
    assert node is not None
    assert await producer.client.ready(node)
    assert not task.done()
    everywhere = list(producer._metadata.partitions_for_topic(topic))
    available = list(producer._metadata.available_partitions_for_topic(topic))
    assert producer._partitioner(b"key", everywhere, available) in {0, 1, 2}
    (broker,) = producer._metadata.brokers()
    assert producer._metadata.controller == broker
    await producer.stop()
    assert producer._sender.sender_task is task
    assert task.done()


async def test_a_record_is_retried_for_as_long_as_the_program_says() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=1500, linger_ms=5)
        await producer.start()
        await producer.send_and_wait("t", b"x")
        broker.kill()
        with pytest.raises(aiokafka.errors.KafkaError):
            await asyncio.wait_for(producer.send_and_wait("t", b"y"), 15)
        await asyncio.wait_for(producer.stop(), 15)


@pytest.mark.parametrize(
    ("given", "delivery_ms", "request_ms"),
    [
        ({}, 40_000, 40_000),
        ({"request_timeout_ms": 4000, "linger_ms": 100}, 4000, 3900),
        ({"linger_ms": 50_000}, 50_001, 1),
    ],
)
def test_request_timeout_ms_bounds_a_delivery(given: dict[str, Any], delivery_ms: int, request_ms: int) -> None:
    options = AIOKafkaProducer(**given)._options
    assert (options["delivery_timeout_ms"], options["request_timeout_ms"]) == (delivery_ms, request_ms)
