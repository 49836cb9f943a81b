"""A cluster that cannot be reached: the error says which host, how far the connection came, and why; and how soon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, KafkaError, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import (
    AuthenticationError,
    BootstrapError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    TransactionTimeoutError,
)
from kafkaprod.net.transport import Address
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.ports import free_ports
from tests.support.clock import Stopwatch
from tests.support.kafka.fixtures_mock_cluster import MockCluster

NEVER_MS = 600_000  # the pytest timeout strikes first: what is raised under it was raised early
SOON_MS = 300
SLOW_S = 30.0  # of a busy machine, and half of max_block_ms


def failure_of(**options: Any) -> KafkaError:
    """What a send to a cluster that cannot be reached raises."""
    with Producer(**options) as producer, pytest.raises(KafkaError) as caught:
        producer.send("topic", b"value")
    assert not producer.bootstrap_connected()
    return caught.value


def unresolvable(host: str, _: int, *, family: int) -> Any:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_a_refused_port_is_named_when_max_block_ms_has_passed() -> None:
    (port,) = free_ports(1)
    waited = Stopwatch()
    error = failure_of(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=SOON_MS)
    assert waited.ms >= SOON_MS
    assert isinstance(error, BootstrapError)
    assert f"127.0.0.1:{port} (connect)" in str(error)
    assert "refused" in str(error)


CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("topic", b"value"),
    "send_many": lambda producer: producer.send_many("topic", [b"value"]),
    "send_columns": lambda producer: producer.send_columns("topic", (np.array([0, 5]), b"value")),
    "send_table": lambda producer: producer.send_table("topic", {"value": [b"value"]}),
    "partitions_for": lambda producer: producer.partitions_for("topic"),
}


@pytest.fixture(params=["refused", "silent"])
def unreachable(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An address where nothing answers, and how far a connection comes there."""
    if request.param == "refused":
        yield f"127.0.0.1:{free_ports(1)[0]}", "connect"
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}", "api_versions"


@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_up_soon_if_no_server_has_ever_answered(unreachable: tuple[str, str], call: str) -> None:
    address, stage = unreachable
    with Producer(bootstrap_servers=address, bootstrap_timeout_ms=SOON_MS) as producer:  # max_block_ms: a minute
        waited = Stopwatch()
        for _ in range(2):  # the second tries again, for as long
            with pytest.raises(BootstrapError) as caught:
                CALLS[call](producer)
            assert f"{address} ({stage})" in str(caught.value)
            assert f"gave up after bootstrap_timeout_ms={SOON_MS}" in str(caught.value)
        assert 2 * SOON_MS <= waited.ms < SLOW_S * 1000


def test_init_transactions_gives_up_soon_if_no_server_has_ever_answered(unreachable: tuple[str, str]) -> None:
    address, stage = unreachable
    options: dict[str, Any] = {"bootstrap_timeout_ms": SOON_MS, "transactional_id": "t"}
    started = time.monotonic()
    with Producer(bootstrap_servers=address, **options) as producer:
        for _ in range(2):
            with pytest.raises(BootstrapError) as caught:
                producer.init_transactions()
            assert f"{address} ({stage})" in str(caught.value)
            assert caught.value.category == "retriable"
        with pytest.raises(TransactionTimeoutError, match=r"within 0\.1 s"):
            producer.init_transactions(timeout=0.1)
    assert time.monotonic() - started < SLOW_S


async def test_an_async_producer_gives_up_soon_too(unreachable: tuple[str, str]) -> None:
    address, stage = unreachable
    options: dict[str, Any] = {"bootstrap_timeout_ms": SOON_MS, "transactional_id": "t"}
    started = time.monotonic()
    async with AsyncProducer(bootstrap_servers=address, bootstrap_timeout_ms=SOON_MS) as producer:
        with pytest.raises(BootstrapError, match=rf"\({stage}\).*bootstrap_timeout_ms={SOON_MS}"):
            await producer.send("topic", b"value")
        with pytest.raises(BootstrapError):
            await producer.send_many("topic", [b"value"])
    async with AsyncProducer(bootstrap_servers=address, **options) as producer:
        with pytest.raises(BootstrapError):
            await producer.init_transactions()
    assert time.monotonic() - started < SLOW_S


def test_a_broker_that_starts_later_gets_the_records_of_the_next_call() -> None:
    (port,) = free_ports(1)
    with Producer(bootstrap_servers=f"127.0.0.1:{port}", bootstrap_timeout_ms=SOON_MS) as producer:
        with pytest.raises(BootstrapError):
            producer.send("topic", b"value")
        with EmbeddedBroker(port=port):
            wait_until(producer.bootstrap_connected, 30, "connection")
            assert producer.send("topic", b"value").result(30).offset == 0


def test_a_broker_that_starts_within_the_time_is_waited_for() -> None:
    (port,) = free_ports(1)
    with Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=60_000) as producer:
        future: list[Any] = []
        sending = threading.Thread(target=lambda: future.append(producer.send("topic", b"value")))
        sending.start()
        wait_until(lambda: producer.engine.topic_watch._last_trouble is not None, 30, "refusal")
        with EmbeddedBroker(port=port):
            sending.join(60)
            assert future[0].result(30).offset == 0


def test_after_a_first_answer_only_max_block_ms_counts() -> None:
    with EmbeddedBroker(topics={"known": 1}) as broker:
        options: dict[str, Any] = {"bootstrap_timeout_ms": 1, "max_block_ms": SOON_MS, "delivery_timeout_ms": 1000}
        with Producer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=900, **options) as producer:
            wait_until(lambda: producer.engine.topic_watch.has_contact(), 30, "contact")
            producer.partitions_for("known")
            broker.kill()
            with pytest.raises(MetadataTimeoutError, match=f"max_block_ms={SOON_MS}"):
                producer.partitions_for("unknown")


def test_every_bootstrap_server_that_failed_is_named() -> None:
    ports = free_ports(3)
    error = failure_of(bootstrap_servers=[f"127.0.0.1:{port}" for port in ports], max_block_ms=SOON_MS)
    assert all(f"127.0.0.1:{port} (connect)" in str(error) for port in ports)


def test_names_that_cannot_be_resolved_fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.net.node.resolve", unresolvable)
    error = failure_of(bootstrap_servers="kafka-1.test:9092,kafka-2.test:9092", max_block_ms=NEVER_MS)
    assert isinstance(error, BootstrapError)
    assert "kafka-1.test:9092 (resolve)" in str(error)
    assert "kafka-2.test:9092 (resolve)" in str(error)
    assert "Name or service not known" in str(error)


def test_one_name_that_can_be_resolved_is_enough(mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.net.node.resolve", unresolvable)
    with Producer(bootstrap_servers=f"kafka-1.test:9092,{mock_cluster.bootstrap}") as producer:
        assert producer.send("topic", b"value").result(30).offset == 0


def test_a_name_that_can_be_resolved_later_is_used_then(
    mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = mock_cluster.bootstrap.split(",")[0].split(":")
    with Producer(bootstrap_servers=f"kafka.test:{port}", max_block_ms=30_000) as producer:
        with monkeypatch.context() as patch:
            patch.setattr("kafkaprod.net.node.resolve", unresolvable)
            with pytest.raises(BootstrapError):
                producer.send("topic", b"value")
        address = Address(socket.AF_INET, (host, int(port)))
        monkeypatch.setattr("kafkaprod.net.node.resolve", lambda *_, **__: [address])
        wait_until(producer.bootstrap_connected, 30, "connection")  # tried on even while nobody sends
        assert producer.send("topic", b"value").result(30).offset == 0


def test_tls_to_a_plain_port_says_so(mock_cluster: MockCluster) -> None:
    error = failure_of(
        bootstrap_servers=mock_cluster.bootstrap,
        security_protocol="SSL",
        max_block_ms=SOON_MS,
        ssl_check_hostname=False,
    )
    assert isinstance(error, BootstrapError)
    assert "(tls)" in str(error)


def test_each_server_is_warned_of_at_its_first_failure_only(caplog: pytest.LogCaptureFixture) -> None:
    ports = free_ports(2)
    with caplog.at_level(logging.WARNING, "kafkaprod"):
        failure_of(bootstrap_servers=[f"127.0.0.1:{port}" for port in ports], max_block_ms=SOON_MS)
    warnings = [record.getMessage() for record in caplog.records]
    assert sorted(text.split(" ended")[0] for text in warnings) == sorted(
        f"connection to 127.0.0.1:{port}" for port in ports
    )
    assert all("refused" in text for text in warnings)


@pytest.mark.external
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_fails_at_once(kafka: KafkaCluster, listener: str, mechanism: str) -> None:
    assert kafka.certificates is not None
    error = failure_of(
        bootstrap_servers=kafka.bootstrap(listener),
        security_protocol=listener,
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="wrong-canary",
        max_block_ms=NEVER_MS,
        **({"ssl_cafile": str(kafka.certificates.ca)} if listener == "SASL_SSL" else {}),
    )
    assert isinstance(error, AuthenticationError)
    assert f"{kafka.bootstrap(listener)} (sasl)" in str(error)
    assert "canary" not in str(error)


@pytest.mark.external
def test_a_certificate_of_an_unknown_authority_fails_at_once(kafka: KafkaCluster) -> None:
    assert kafka.certificates is not None
    error = failure_of(
        bootstrap_servers=kafka.bootstrap("SSL"),
        security_protocol="SSL",
        ssl_cafile=str(kafka.certificates.other_ca),
        max_block_ms=NEVER_MS,
    )
    assert isinstance(error, AuthenticationError)
    assert f"{kafka.bootstrap('SSL')} (tls)" in str(error)
    assert "certificate verify failed" in str(error)


@pytest.mark.external
def test_tls_to_a_plain_port_of_apache_kafka_says_so(kafka: KafkaCluster) -> None:
    error = failure_of(bootstrap_servers=kafka.bootstrap(), security_protocol="SSL", max_block_ms=SOON_MS)
    assert isinstance(error, BootstrapError)
    assert f"{kafka.bootstrap()} (tls)" in str(error)


@pytest.mark.external
@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT"])
def test_plain_text_to_a_secured_port_says_so(kafka: KafkaCluster, listener: str) -> None:
    error = failure_of(bootstrap_servers=kafka.bootstrap(listener), max_block_ms=SOON_MS)
    assert isinstance(error, BootstrapError)
    assert kafka.bootstrap(listener) in str(error)
    assert "security_protocol" in str(error)


SOON_S = 10.0


def test_another_cluster_at_the_old_address_gets_the_next_record(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    with Producer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
        with EmbeddedBroker(port=port, topics={"t": 1}):
            for _ in range(3):
                producer.send("t", b"value").result(SLOW_S)
        with EmbeddedBroker(port=port, topics={"t": 1}):
            assert producer.send("t", b"value").result(SOON_S).offset == 0
            assert producer.send("t", b"value").result(SOON_S).offset == 1
    assert len([record for record in caplog.records if "the cluster is" in record.getMessage()]) == 1


async def test_another_cluster_at_the_old_address_gets_the_next_record_of_an_async_producer() -> None:
    (port,) = free_ports(1)
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
        with EmbeddedBroker(port=port, topics={"t": 1}):
            await (await producer.send("t", b"value"))
        with EmbeddedBroker(port=port, topics={"t": 1}):
            assert (await asyncio.wait_for(await producer.send("t", b"value"), SOON_S)).offset == 0


def test_another_cluster_is_refused_where_the_user_says_so_and_the_record_says_why() -> None:
    (port,) = free_ports(1)
    options: dict[str, Any] = {"delivery_timeout_ms": 4000, "request_timeout_ms": 2000}
    with Producer(bootstrap_servers=f"127.0.0.1:{port}", metadata_cluster_check_enable=True, **options) as producer:
        with EmbeddedBroker(port=port, topics={"t": 1}):
            producer.send("t", b"value").result(SLOW_S)
        with (
            EmbeddedBroker(port=port, topics={"t": 1}),
            pytest.raises(DeliveryTimeoutError, match="metadata_cluster_check_enable=true takes no other cluster"),
        ):
            producer.send("t", b"value").result(SLOW_S)


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address that drops what begins to connect, as a host that is off: its backlog is full."""
    with socket.socket() as server, contextlib.ExitStack() as clients:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()


def test_a_server_that_is_off_keeps_nobody_from_the_others(silent: tuple[str, int]) -> None:
    off = f"127.0.0.1:{silent[1]}"
    with EmbeddedBroker(topics={"t": 1}) as broker:
        for _ in range(6):  # the first server is chosen by chance
            with Producer(
                bootstrap_servers=f"{off},{broker.bootstrap_servers}", socket_connection_setup_timeout_ms=30_000
            ) as producer:
                producer.send("t", b"value").result(SOON_S)


def test_the_error_names_every_server_that_was_tried(silent: tuple[str, int]) -> None:
    (refusing,) = free_ports(1)
    error = failure_of(
        bootstrap_servers=f"127.0.0.1:{silent[1]},127.0.0.1:{refusing}", bootstrap_timeout_ms=2000, max_block_ms=2000
    )
    assert f"127.0.0.1:{silent[1]} (connect): no answer yet" in str(error)
    assert f"127.0.0.1:{refusing} (connect)" in str(error)
