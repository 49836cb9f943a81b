"""The benchmark sink accepts, counts and acknowledges whatever a client sends."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from benchmarks.sink import Sink
from benchmarks.sink_blaster import produce_request, record_batch
from tests.kafka.runtime import run_java

RECORDS = 1000


@pytest.fixture(scope="module", params=[1, 3], ids=["one node", "three nodes"])
def sink(request: pytest.FixtureRequest) -> Iterator[Sink]:
    with Sink({"bench": 6, "other": 1}, nodes=request.param, check_crc=True) as running:
        yield running


def test_confluent_kafka_gets_growing_offsets(sink: Sink) -> None:
    before = sink.offsets()["bench"]
    sink.reset()
    producer = confluent_kafka.Producer({"bootstrap.servers": sink.bootstrap, "enable.idempotence": True})
    offsets: dict[int, list[int]] = {index: [] for index in range(6)}

    def on_delivery(error: object, message: Any) -> None:
        assert error is None
        offsets[message.partition()].append(message.offset())

    for index in range(RECORDS):
        producer.produce("bench", b"value", key=b"%d" % index, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(20) == 0
    assert sink.counts().records == RECORDS
    assert sink.counts().crc_errors == 0
    after = sink.offsets()["bench"]
    assert offsets == {index: list(range(before[index], after[index])) for index in range(6)}


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_kafka_python_is_acknowledged(sink: Sink, codec: str | None) -> None:
    sink.reset()
    producer = kafka.KafkaProducer(bootstrap_servers=sink.bootstrap.split(","), compression_type=codec)
    futures = [producer.send("bench", b"value", partition=index % 6) for index in range(RECORDS)]
    producer.flush(20)
    assert all(future.succeeded() for future in futures)
    producer.close(20)
    assert sink.counts().records == RECORDS
    assert sink.counts().crc_errors == 0


async def test_aiokafka_is_acknowledged(sink: Sink) -> None:
    sink.reset()
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=sink.bootstrap)
    await producer.start()
    results = await asyncio.gather(*[await producer.send("bench", b"value") for _ in range(RECORDS)])
    await producer.stop()
    assert len(results) == RECORDS
    assert sink.counts().records == RECORDS


@pytest.mark.external
def test_java_producer_is_acknowledged(sink: Sink, kafka_tools: str) -> None:
    sink.reset()
    arguments = ["--topic", "bench", "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    settings = ["--command-property", f"bootstrap.servers={sink.bootstrap}"]
    run_java(kafka_tools, "org.apache.kafka.tools.ProducerPerformance", [*arguments, *settings])
    assert sink.counts().records == RECORDS
    assert sink.counts().crc_errors == 0


@pytest.mark.parametrize("version", range(3, 12))
def test_every_produce_version_is_read_and_answered(sink: Sink, version: int) -> None:
    sink.reset()
    batches = [("bench", index, record_batch([b"x" * 50_000] * 4)) for index in range(6)]
    with socket.create_connection(("127.0.0.1", sink.ports[0])) as connection:
        for correlation_id in (7, 8):
            connection.sendall(produce_request(version, correlation_id, batches))
            (size,) = struct.unpack(">i", receive(connection, 4))
            assert struct.unpack(">i", receive(connection, size)[:4]) == (correlation_id,)
    counts = sink.counts()
    assert (counts.requests, counts.batches, counts.records, counts.crc_errors) == (2, 12, 48, 0)
    assert counts.batch_bytes == 2 * sum(len(batch) for _, _, batch in batches)


def test_frames_split_anywhere_are_understood() -> None:
    request = produce_request(9, 1, [("bench", 0, record_batch([b"value"] * 3))] * 2)
    with Sink({"bench": 1}) as sink, socket.create_connection(("127.0.0.1", sink.ports[0])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(request)):
            connection.sendall(request[index : index + 1])
        assert len(receive(connection, 4)) == 4
        assert sink.counts().records == 6


@pytest.mark.parametrize("keep_bytes", [False, True], ids=["dropped", "kept"])
def test_unacknowledged_requests_are_counted_and_not_answered(keep_bytes: bool) -> None:
    batch = record_batch([b"x" * 1000] * 500)
    with (
        Sink({"bench": 1}, keep_bytes=keep_bytes) as sink,
        socket.create_connection(("127.0.0.1", sink.ports[0])) as connection,
    ):
        connection.sendall(produce_request(9, 1, [("bench", 0, batch)], acks=0))
        connection.sendall(produce_request(9, 2, [("bench", 0, batch)], acks=1))
        size, correlation_id = struct.unpack(">ii", receive(connection, 8))
        assert correlation_id == 2
        assert len(receive(connection, size - 4)) == size - 4
        assert sink.counts().records == 1000
        assert sink.offsets() == {"bench": [1000]}


def test_wrong_checksum_is_counted() -> None:
    batch = bytearray(record_batch([b"value"]))
    batch[-1] ^= 1
    with (
        Sink({"bench": 1}, check_crc=True) as sink,
        socket.create_connection(("127.0.0.1", sink.ports[0])) as connection,
    ):
        connection.sendall(produce_request(9, 1, [("bench", 0, bytes(batch))]))
        receive(connection, 4)
        assert sink.counts().crc_errors == 1


def test_unknown_topic_is_refused() -> None:
    with Sink({"bench": 1}) as sink:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": sink.bootstrap, "topic.metadata.propagation.max.ms": 0}
        )
        assert list(producer.list_topics(timeout=10).topics) == ["bench"]
        errors: list[int] = []

        def on_refusal(error: Any, _: object) -> None:
            errors.append(error.code())

        try:
            producer.produce("absent", b"value", on_delivery=on_refusal)
        except confluent_kafka.KafkaException as error:  # the client knows it from the list already
            errors.append(error.args[0].code())
        assert producer.flush(20) == 0
        kinds = confluent_kafka.KafkaError
        assert errors in ([kinds.UNKNOWN_TOPIC_OR_PART], [kinds._UNKNOWN_TOPIC])


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = connection.recv(count - len(data))
        assert received, f"connection closed after {len(data)} of {count} bytes"
        data += received
    return data
