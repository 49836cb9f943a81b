"""A broker in an environment that has kafkaprod and what it depends on, and no optional package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.compression import CODEC_IDS
from tests.support.broker.fixtures_broker import wait_until

OPTIONAL = ("cramjam", "isal", "re2", "pyarrow", "orjson", "fastavro", "google_re2")


@pytest.fixture
def plain_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that start from now on find no optional package."""
    for name in OPTIONAL:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is not installed')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture(params=["alone", "cluster"])
def bootstrap_servers(
    request: pytest.FixtureRequest, plain_install: None, capfd: pytest.CaptureFixture[str]
) -> Iterator[str]:
    topics = dict.fromkeys(CODEC_IDS, 1)
    if request.param == "alone":
        with EmbeddedBroker(topics=topics) as broker:
            yield broker.bootstrap_servers
    else:
        with EmbeddedCluster(brokers=2, topics=topics, replication_factor=2) as cluster:
            yield cluster.bootstrap_servers


def send(bootstrap_servers: str, codec: str) -> list[object]:
    """Send a hundred records to the codec's topic; return what they met."""
    met: list[object] = []
    producer = ConfluentProducer({"bootstrap.servers": bootstrap_servers, "compression.type": codec, "linger.ms": 100})
    for _ in range(100):
        producer.produce(codec, b"value " * 100, on_delivery=lambda error, _: met.append(error))
    producer.flush(60)
    return met


def read(bootstrap_servers: str, topics: list[str], count: int) -> list[bytes | None]:
    """Read so many values."""
    options = {"bootstrap.servers": bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = ConfluentConsumer(options)
    consumer.subscribe(topics)
    values: list[bytes | None] = []

    def has_all() -> bool:
        values.extend(message.value() for message in consumer.consume(count, 0.2))
        return len(values) >= count

    wait_until(has_all, "all records are read")
    consumer.close()
    return values


def test_every_codec_is_taken(bootstrap_servers: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert {codec: send(bootstrap_servers, codec) for codec in CODEC_IDS} == dict.fromkeys(CODEC_IDS, [None] * 100)
    assert read(bootstrap_servers, list(CODEC_IDS), 500) == [b"value " * 100] * 500
    assert "Traceback" not in capfd.readouterr().err
