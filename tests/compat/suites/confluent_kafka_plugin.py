"""Puts kafkaprod.compat.confluent_kafka in place of confluent-kafka's producer, and our broker at localhost:9092."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import confluent_kafka
import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.compat import confluent_kafka as compat
from kafkaprod.compat.confluent_kafka import error, serialization

for _name in ("Producer", "SerializingProducer", "KafkaError", "KafkaException", "Message"):
    setattr(confluent_kafka, _name, getattr(compat, _name))
avro = ModuleType("confluent_kafka.avro")  # the old one needs a package that is not installed
avro.AvroProducer = type("AvroProducer", (compat.Producer,), {})  # type: ignore[attr-defined]
sys.modules["confluent_kafka.avro"] = avro
sys.modules["confluent_kafka.error"] = error
sys.modules["confluent_kafka.serialization"] = serialization


@pytest.fixture(scope="session", autouse=True)
def broker() -> Iterator[EmbeddedBroker]:
    """Run a broker, for the few tests that need one; most use ports where nothing listens."""
    with EmbeddedBroker() as broker:
        yield broker
