"""What we write, others read back exactly: kafka-python and aiokafka in memory, librdkafka through its mock cluster.

The mock acknowledges anything, so only the reader's word counts here.
"""

from __future__ import annotations

import random
import socket
import struct
from typing import Any, cast

import confluent_kafka
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kafkaprod._core.records.batch_reader import RecordBatchReader
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.compression import decompress, make_codec
from tests.property.strategies import records
from tests.support.core.core_engine import TIMESTAMP, Engine, batches_of, body_of, succeed
from tests.support.core.core_model import ModelRecord

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
READERS = {"kafka-python": KafkaPythonRecords, "aiokafka": AiokafkaRecords}
BATCH_BYTES = 1 << 20


def read_with(reader: Any, batch: bytes) -> list[ModelRecord]:
    """The records that another client's reader sees in one batch."""
    read = reader(batch).next_batch()
    assert read.validate_crc()
    return [ModelRecord(r.key, r.value, tuple(r.headers), r.timestamp) for r in read]


def write(rows: list[ModelRecord], codec: str, batch_size: int = BATCH_BYTES) -> list[bytes]:
    """Our batches of these records."""
    engine = Engine(batch_size=batch_size, codec=make_codec(codec), pool_bytes=1 << 26, max_request_bytes=1 << 26)
    for row in rows:
        engine.append_record(row)
    batches = []
    for request in engine.take_all():
        batches += batches_of(request)
        succeed(request)
    return batches


def random_records(seed: int, total_bytes: int) -> list[ModelRecord]:
    """Records of all sizes, half of them compressible, up to about `total_bytes`."""
    rng = random.Random(seed)
    rows: list[ModelRecord] = []
    size = 0
    while size < total_bytes:
        length = rng.choice([0, 1, 63, 64, 100, 1000, 8191, 8192, 40_000])
        value = None if rng.random() < 0.1 else rng.choice([rng.randbytes(length), b"orders " * (length // 7)])
        key = rng.choice([None, b"", b"k%d" % len(rows), b"key" * 50])
        headers = tuple(
            (rng.choice(["h", "ünicode", ""]), rng.choice([None, b"", b"v" * 70])) for _ in range(rng.randint(0, 3))
        )
        rows.append(ModelRecord(key, value, headers, TIMESTAMP + rng.randint(-1000, 10_000_000)))
        size += len(value or b"") + len(key or b"") + 100
    return rows


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=30, deadline=None)
@given(rows=st.lists(records().filter(lambda row: row.timestamp < 2**60), min_size=1, max_size=20))
def test_random_records_are_read_by_python_clients(reader: Any, codec: str, rows: list[ModelRecord]) -> None:
    (batch,) = write(rows, codec)
    assert read_with(reader, batch) == rows


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_up_to_one_mebibyte_are_read_by_python_clients(reader: Any, codec: str) -> None:
    rows = random_records(seed=7, total_bytes=3 * BATCH_BYTES)
    batches = write(rows, codec)
    assert [row for batch in batches for row in read_with(reader, batch)] == rows
    if codec == "none":
        assert max(map(len, batches)) > 0.9 * BATCH_BYTES


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_kafka_python_are_read_by_us(codec: str) -> None:
    from kafka.record.memory_records import MemoryRecordsBuilder

    rows = random_records(seed=3, total_bytes=200_000)
    builder = MemoryRecordsBuilder(magic=2, compression_type=CODECS.index(codec), batch_size=1 << 22)
    for row in rows:
        builder.append(timestamp=row.timestamp, key=row.key, value=row.value, headers=list(row.headers))
    builder.close()
    reader = RecordBatchReader(builder.buffer(), decompress=decompress)
    assert [ModelRecord(key, value, tuple(headers), t) for _, t, key, value, headers in reader.records()] == rows


# librdkafka


class MockCluster:
    """librdkafka's mock broker, which any process can talk to while this object lives."""

    def __init__(self) -> None:
        self._owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._owner.list_topics(timeout=10).brokers.values()
        self.address = (broker.host, broker.port)

    def make_topic(self, name: str) -> None:
        """Topics appear when somebody asks for them."""
        assert self._owner.list_topics(name, timeout=10).topics[name].partitions

    def produce(self, request: ProduceRequest) -> None:
        """Send one request in Produce version 7 and wait for its answer."""
        body = body_of(request)
        frame = struct.pack(">hhih", 0, 7, 1, 1) + b"c" + body
        with socket.create_connection(self.address, timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            reply = connection.makefile("rb")
            (size,) = struct.unpack(">i", reply.read(4))
            answer = reply.read(size)
        # correlation id, 1 topic, its name, 1 partition, its number, error code
        name_length = struct.unpack_from(">h", answer, 8)[0]
        assert struct.unpack_from(">h", answer, 8 + 2 + name_length + 4 + 4)[0] == 0

    def consume(self, topic: str, count: int) -> list[ModelRecord]:
        """The first `count` records of the topic's partition 0."""
        host, port = self.address
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": f"{host}:{port}", "group.id": "g", "check.crcs": True, "log_level": 0}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        rows: list[ModelRecord] = []
        try:
            while len(rows) < count:
                message = consumer.poll(10)
                assert message is not None, f"only {len(rows)} of {count} records came"
                assert message.error() is None, message.error()
                assert message.offset() == len(rows)
                headers = tuple(cast(list[tuple[str, bytes | None]], message.headers() or []))
                rows.append(ModelRecord(message.key(), message.value(), headers, message.timestamp()[1]))
        finally:
            consumer.close()
        return rows


@pytest.fixture(scope="module")
def mock_cluster() -> MockCluster:
    return MockCluster()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("total_bytes", "batch_size"), [(20_000, 2_000), (1_500_000, BATCH_BYTES)], ids=["small", "1 MiB"]
)
def test_librdkafka_reads_what_we_write(
    mock_cluster: MockCluster, codec: str, total_bytes: int, batch_size: int
) -> None:
    topic = f"{codec}-{batch_size}"
    mock_cluster.make_topic(topic)
    rows = random_records(seed=11, total_bytes=total_bytes)
    engine = Engine(
        leaders=[9], batch_size=batch_size, codec=make_codec(codec), pool_bytes=1 << 24, max_request_bytes=1 << 22
    )
    engine.lead([1], topic)
    for row in rows:
        engine.append(row.value, 0, topic, key=row.key, headers=list(row.headers), timestamp=row.timestamp)
    for request in engine.take_all():
        mock_cluster.produce(request)
        succeed(request)
    assert mock_cluster.consume(topic, len(rows)) == rows
