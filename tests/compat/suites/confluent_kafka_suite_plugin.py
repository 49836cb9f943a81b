"""Installs kafkaprod in place of confluent-kafka's producer, and runs our broker for confluent-kafka's own tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType

import confluent_kafka
import confluent_kafka_plugin  # of tests/foreign/plugins: our broker in place of trivup's, for fixtures
import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.compat import install

__all__ = ["confluent_kafka_plugin"]

if os.environ["KAFKAPROD_INSTALL"]:
    install("confluent_kafka")
if not find_spec("avro"):  # what their old module for Avro needs
    _avro = ModuleType("confluent_kafka.avro")
    _avro.AvroProducer = type("AvroProducer", (confluent_kafka.Producer,), {})  # type: ignore[attr-defined]
    _avro.AvroConsumer = type("AvroConsumer", (confluent_kafka.Consumer,), {})  # type: ignore[attr-defined]
    sys.modules["confluent_kafka.avro"] = _avro


@pytest.fixture(scope="session", autouse=True)
def broker() -> Iterator[EmbeddedBroker]:
    """Run a broker, for the few tests that need one; most use ports where nothing listens."""
    with EmbeddedBroker() as broker:
        yield broker
