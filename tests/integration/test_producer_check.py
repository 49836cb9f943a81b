"""check(), start() and list_topics(): what cannot be reached is named in seconds, with host, stage and hint."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import AuthenticationError, BootstrapError, InvalidRecordError, KafkaError, ProducerClosedError
from tests.kafka.ports import free_ports
from tests.support.net.certificates import Authority

NEVER_MS = 600_000
SOON_S = 20.0  # generous: the machine may be busy
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "right",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A plain, a TLS and a SASL broker, and the authority's file."""
    authority = Authority(Path(tmp_path_factory.mktemp("tls")))
    pem = authority.issue("broker", names=["localhost", "127.0.0.1"])
    with (
        EmbeddedBroker(topics={"orders": 3}) as plain,
        EmbeddedBroker(tls_files=(pem.certfile, pem.keyfile)) as tls,
        EmbeddedBroker(sasl_users={"alice": "right"}) as sasl,
    ):
        yield {"plain": plain, "tls": tls, "sasl": sasl, "cafile": str(authority.cafile)}


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def failure_of_check(timeout: float = SOON_S, **options: Any) -> KafkaError:
    """What check() raises, if it raises well before its timeout."""
    started = time.monotonic()
    with Producer(**options) as producer, pytest.raises(KafkaError) as caught:
        producer.check(timeout)
    assert time.monotonic() - started < timeout + 5
    return caught.value


def test_a_refused_port_is_named_at_once_with_its_stage() -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    error = failure_of_check(bootstrap_servers=f"127.0.0.1:{port}")
    assert time.monotonic() - started < SOON_S / 2
    assert isinstance(error, BootstrapError)
    assert f"127.0.0.1:{port} (connect)" in str(error)


def test_every_bootstrap_server_is_tried_before_check_fails(brokers: dict[str, Any]) -> None:
    (port,) = free_ports(1)
    with Producer(bootstrap_servers=f"127.0.0.1:{port},{brokers['plain'].bootstrap_servers}") as producer:
        for _ in range(5):
            producer.check()


def test_a_silent_port_is_named_when_the_timeout_has_passed(silent: str) -> None:
    error = failure_of_check(0.2, bootstrap_servers=silent)
    assert isinstance(error, BootstrapError)
    assert f"{silent} (api_versions): no answer yet (does security_protocol=PLAINTEXT fit" in str(error)


def test_tls_to_a_plain_port_gets_a_hint(brokers: dict[str, Any]) -> None:
    error = failure_of_check(
        bootstrap_servers=brokers["plain"].bootstrap_servers, security_protocol="SSL", ssl_cafile=brokers["cafile"]
    )
    assert "(tls)" in str(error)
    assert "does security_protocol=SSL fit" in str(error)


@pytest.mark.parametrize("kind", ["tls", "sasl"])
def test_plain_text_to_a_secured_port_gets_a_hint(brokers: dict[str, Any], kind: str) -> None:
    error = failure_of_check(bootstrap_servers=brokers[kind].bootstrap_servers)
    assert brokers[kind].bootstrap_servers in str(error)
    assert "does security_protocol=PLAINTEXT fit" in str(error)


def test_a_login_at_a_plain_port_says_that_it_takes_none(brokers: dict[str, Any]) -> None:
    error = failure_of_check(bootstrap_servers=brokers["plain"].bootstrap_servers, **LOGIN)
    assert isinstance(error, AuthenticationError)
    assert "is not a SASL listener" in str(error)


def test_a_wrong_password_is_an_authentication_error(brokers: dict[str, Any]) -> None:
    options = {**LOGIN, "sasl_plain_password": "canary"}
    error = failure_of_check(bootstrap_servers=brokers["sasl"].bootstrap_servers, **options)
    assert isinstance(error, AuthenticationError)
    assert "canary" not in str(error)


@pytest.mark.parametrize("kind", ["plain", "tls", "sasl"])
def test_send_gives_up_in_seconds_where_the_protocol_does_not_fit(brokers: dict[str, Any], kind: str) -> None:
    options = {"security_protocol": "SSL", "ssl_cafile": brokers["cafile"]} if kind == "plain" else {}
    address = brokers[kind].bootstrap_servers
    with (
        Producer(bootstrap_servers=address, max_block_ms=NEVER_MS, **options) as producer,
        pytest.raises(BootstrapError, match="does security_protocol="),
    ):
        producer.send("orders", b"value")


def test_topics_are_listed_with_partitions_and_none_is_created(brokers: dict[str, Any]) -> None:
    with Producer(bootstrap_servers=brokers["plain"].bootstrap_servers) as producer:
        cluster = producer.list_topics()
        assert len(cluster.topics["orders"].partitions) == 3
        assert cluster.controller_id in cluster.brokers
        assert cluster.cluster_id
        missing = producer.list_topics("missing")
        assert list(missing.errors) == ["missing"]
        assert "missing" not in producer.list_topics().topics


async def test_start_of_an_async_producer_raises_and_list_topics_answers(brokers: dict[str, Any]) -> None:
    (port,) = free_ports(1)
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
        with pytest.raises(BootstrapError, match=r"\(connect\)"):
            await producer.start()
    async with await AsyncProducer(bootstrap_servers=brokers["plain"].bootstrap_servers).start() as producer:
        assert "orders" in (await producer.list_topics()).topics


@pytest.mark.parametrize("timeout", [float("nan"), "1", True])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    with Producer(bootstrap_servers="127.0.0.1:1") as producer, pytest.raises(InvalidRecordError):
        producer.check(timeout)


def test_a_closed_producer_answers_no_question() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    producer.close(0)
    with pytest.raises(ProducerClosedError):
        producer.check()
