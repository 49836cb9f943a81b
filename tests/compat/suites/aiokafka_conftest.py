"""Takes the place of aiokafka's own tests/conftest.py: our producer and broker instead of theirs and Docker's."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aiokafka
import aiokafka.producer
import aiokafka.structs
import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.compat import aiokafka as compat
from kafkaprod.compat.aiokafka import errors

aiokafka.AIOKafkaProducer = aiokafka.producer.AIOKafkaProducer = compat.AIOKafkaProducer  # type: ignore[misc]
sys.modules["aiokafka.errors"] = errors  # only for what is imported from now on: the tests
sys.modules["docker"] = ModuleType("docker")


def _certificates() -> Any:
    """Load our tests' certificates by path: their tests are the package `tests` here."""
    path = Path(os.environ["KAFKAPROD_ROOT"]) / "tests" / "support" / "net" / "certificates.py"
    spec = importlib.util.spec_from_file_location("certificates_of_kafkaprod", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A plain broker with topics of two partitions, a TLS broker, and the files of the latter."""
    directory = Path(tmp_path_factory.mktemp("tls"))
    authority = _certificates().Authority(directory)
    pem = authority.issue("broker", names=["localhost", "127.0.0.1"])
    (directory / "ca-cert").write_bytes(authority.cafile.read_bytes())
    options = {"group.min.session.timeout.ms": 1000}
    with (
        EmbeddedBroker(num_partitions=2, options=options) as plain,
        EmbeddedBroker(num_partitions=2, tls_files=(pem.certfile, pem.keyfile)) as tls,
    ):
        yield {"plain": plain, "tls": tls, "directory": directory}


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop for the tests of a class."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Give the class a loop."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop, brokers: dict[str, Any]) -> None:
    """Give the class a loop and addresses."""
    host, _, port = brokers["plain"].bootstrap_servers.rpartition(":")
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)
    request.cls.hosts = [f"{host}:{port}"]
    request.cls.kafka_ssl_port = int(brokers["tls"].bootstrap_servers.rpartition(":")[2])
    request.cls.ssl_folder = brokers["directory"]
    request.cls.kafka_version = "2.8.1"
