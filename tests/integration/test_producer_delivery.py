"""What is sent is in Apache Kafka's log once, in order, in its place: every codec, acks, protocol and mechanism.

By default each value meets each other one; all 320 combinations, on one node and on three:

    python -m pytest tests/integration/test_producer_delivery.py -m "slow or not slow"
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, Headers, Producer
from tests.kafka.batches import codecs_of_large_batches, read_log
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.reading import end_offsets, read_all, read_with_java
from tests.support.kafka.fixtures_kafka import skipped_where_unavailable
from tests.support.producer.delivered import (
    CODECS,
    PARTITIONS,
    GivenRecord,
    HeaderList,
    Sends,
    arrow_column,
    assorted_records,
    send_block,
    send_columns,
    send_in_every_way,
    wait_until_served,
)

pytestmark = pytest.mark.external

MODES: tuple[dict[str, Any], ...] = (
    {"acks": 0, "enable_idempotence": False},
    {"acks": 1, "enable_idempotence": False},
    {"acks": "all", "enable_idempotence": False},
    {"acks": "all", "enable_idempotence": True},
)
SECURED: tuple[tuple[str, str | None], ...] = (
    ("SSL", None),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
)
# Every pair of (protocol and mechanism, codec), and with four modes, five codecs and seven protocols every other pair.
PAIRWISE = [
    (*secured, codec, MODES[(row + column) % len(MODES)])
    for row, secured in enumerate(SECURED)
    for column, codec in enumerate(CODECS)
]


def name_of(value: Any) -> str | None:
    """How a parameter appears in a test's name."""
    if isinstance(value, dict):
        return f"acks={value['acks']}{'-idempotent' if value['enable_idempotence'] else ''}"
    return None


def connection(cluster: KafkaCluster, listener: str = "PLAINTEXT", mechanism: str | None = None) -> dict[str, Any]:
    """Options that reach a listener."""
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap(listener), "security_protocol": listener}
    if "SSL" in listener:
        assert cluster.certificates is not None
        options["ssl_cafile"] = str(cluster.certificates.ca)
    if mechanism is not None:
        options |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-secret",
        }
    return options


def deliver_and_compare(cluster: KafkaCluster, topic: str, **options: Any) -> None:
    """Send everything, some of it in batches of more than 64 KiB, read it back with librdkafka, compare."""
    cluster.create_topic(topic, PARTITIONS)
    reader = cluster.direct_bootstrap()
    if not options.get("enable_idempotence", True):
        wait_until_served(reader, topic)
    sends = Sends()
    with Producer(**options) as producer:
        send_in_every_way(producer, topic, sends)
    answered = options["acks"] != 0
    # With 0 nobody says when the records are in the log; with 1 they are read only once the followers have them.
    if options["acks"] != "all":
        wait_until(lambda: sum(end_offsets(reader, topic).values()) >= len(sends), 30, f"{len(sends)} records")
    sends.check(read_all(reader, topic), offsets_known=answered)
    assert codecs_of_large_batches(read_log(reader, topic)) == {options.get("compression_type", "none")}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mode", MODES, ids=name_of)
def test_everything_sent_is_in_its_place(
    kafka: KafkaCluster, topic_name: str, codec: str, mode: dict[str, Any]
) -> None:
    deliver_and_compare(kafka, topic_name, **connection(kafka), compression_type=codec, **mode)


@pytest.mark.parametrize(("listener", "mechanism", "codec", "mode"), PAIRWISE, ids=name_of)
def test_everything_sent_over_a_secured_connection_is_in_its_place(
    kafka: KafkaCluster, topic_name: str, listener: str, mechanism: str | None, codec: str, mode: dict[str, Any]
) -> None:
    deliver_and_compare(kafka, topic_name, **connection(kafka, listener, mechanism), compression_type=codec, **mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=name_of)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("listener", "mechanism"), SECURED, ids=name_of)
def test_every_combination_on_a_secured_connection(
    kafka: KafkaCluster, topic_name: str, listener: str, mechanism: str | None, codec: str, mode: dict[str, Any]
) -> None:
    deliver_and_compare(kafka, topic_name, **connection(kafka, listener, mechanism), compression_type=codec, **mode)


def test_a_client_certificate_is_presented(kafka: KafkaCluster, topic_name: str) -> None:
    certificates = kafka.certificates
    assert certificates is not None
    options = connection(kafka, "SSL") | {
        "ssl_certfile": str(certificates.client_certificate),
        "ssl_keyfile": str(certificates.client_key),
    }
    deliver_and_compare(kafka, topic_name, **options, acks="all")


def text_records(count: int) -> list[GivenRecord]:
    """What the console consumer prints without ambiguity; the first does not fit 64 KiB, compressed or not."""
    source = random.Random(count)
    keys = (None, b"", b"key", "\u20ac".encode())
    values = (b"value", None, b"", "\u00fcnicode ".encode() * 3000)
    headers: tuple[HeaderList, ...] = ([], [("a", b"1"), ("a", b"2"), ("b", None), ("c", b"")])
    large = GivenRecord(None, source.randbytes(100_000).hex().encode(), [], 1_600_000_000_000)
    return [
        large,
        *(
            GivenRecord(keys[i % 4], values[i // 4 % 4], list(headers[i // 16 % 2]), 1_600_000_000_000 + i)
            for i in range(1, count)
        ),
    ]


def test_the_java_consumer_reads_the_same(kafka: KafkaCluster, kafka_tools: str, topic_name: str) -> None:
    kafka.create_topic(topic_name, PARTITIONS)
    sends = Sends()
    for codec in CODECS:
        with Producer({"bootstrap_servers": kafka.bootstrap(), "compression_type": codec}) as producer:
            for record in text_records(64):
                future = producer.send(
                    topic_name, record.value, record.key, record.headers, timestamp_ms=record.timestamp_ms
                )
                sends.add(future, record)
            send_block(producer, topic_name, text_records(200), sends)
    sends.check(read_with_java(kafka.direct_bootstrap(), topic_name, len(sends)))
    assert codecs_of_large_batches(read_log(kafka.direct_bootstrap(), topic_name)) == set(CODECS)


async def test_asyncio_sends_in_every_way(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, PARTITIONS)
    sends = Sends()
    records = assorted_records(100)
    keys, values = [record.key for record in records], [record.value for record in records]
    headers = [record.headers for record in records]
    timestamps_ms = np.array([record.timestamp_ms or 0 for record in records], dtype=np.int64)
    stamped = [record._replace(timestamp_ms=record.timestamp_ms or 0) for record in records]
    async with AsyncProducer(bootstrap_servers=kafka.bootstrap(), compression_type="lz4") as producer:
        for record in records:
            key, value, header_list, timestamp_ms = record
            future = await producer.send(topic_name, value, key, header_list, timestamp_ms=timestamp_ms)
            sends.add(future, record)
        for record in records[:10]:
            key, value, header_list, timestamp_ms = record
            metadata = await producer.send_and_wait(topic_name, value, key, header_list, timestamp_ms=timestamp_ms)
            sends.add(metadata, record)
        block = await producer.send_many(topic_name, values, keys, headers, timestamps_ms=timestamps_ms)
        assert await block is block
        columns = await producer.send_columns(
            topic_name,
            arrow_column(values),
            arrow_column(keys),
            Headers.from_python(headers),
            timestamps_ms=timestamps_ms,
        )
        await producer.flush()
        assert columns.done()
        assert await producer.partitions_for(topic_name) == set(range(PARTITIONS))
    sends.add(block, *stamped)
    sends.add(columns, *stamped)
    sends.check(read_all(kafka.direct_bootstrap(), topic_name))


@pytest.mark.parametrize("codec", CODECS)
def test_everything_sent_to_three_nodes_is_in_its_place(kafka3: KafkaCluster, topic_name: str, codec: str) -> None:
    deliver_and_compare(kafka3, topic_name, bootstrap_servers=kafka3.bootstrap(), compression_type=codec, acks="all")


@pytest.fixture(scope="module")
def secured_kafka3() -> Iterator[KafkaCluster]:
    """Three nodes with every listener, of the slow tests alone."""
    cluster = KafkaCluster(3, listeners=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    try:
        with skipped_where_unavailable():
            cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=name_of)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("listener", "mechanism"), [("PLAINTEXT", None), *SECURED], ids=name_of)
def test_every_combination_on_three_nodes(
    secured_kafka3: KafkaCluster,
    topic_name: str,
    listener: str,
    mechanism: str | None,
    codec: str,
    mode: dict[str, Any],
) -> None:
    options = connection(secured_kafka3, listener, mechanism)
    deliver_and_compare(secured_kafka3, topic_name, **options, compression_type=codec, **mode)


def test_many_partitions_on_three_nodes_get_their_records(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name, 60)
    sends = Sends()
    records = [GivenRecord(b"%d" % (i % 997), b"%d" % i, [], None) for i in range(20_000)]
    with Producer(bootstrap_servers=kafka3.bootstrap()) as producer:
        send_columns(producer, topic_name, records, sends)
        for record in records[:5000]:
            sends.add(producer.send(topic_name, record.value, record.key), record)
    log = read_all(kafka3.direct_bootstrap(), topic_name)
    sends.check(log)
    assert all(log.values()), "997 keys reach each of 60 partitions"
