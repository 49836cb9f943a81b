"""GSSAPI logins at Apache Kafka with tickets of a real KDC, and how they fail."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gssapi  # noqa: F401 -- without the package this file is left out
import kafka
import pytest

from kafkaprod import Producer
from kafkaprod.compat.kafka_python import KafkaProducer
from kafkaprod.errors import AuthenticationError, KafkaError
from tests.kafka.cluster import KafkaCluster
from tests.kafka.kdc import REALM, Kdc
from tests.support.clock import Stopwatch
from tests.support.kafka.fixtures_kafka import skipped_where_unavailable

pytestmark = pytest.mark.external
TOPIC = "t"
WAIT_S = 60.0
SESSION_MS = 1500
TICKET_S = 3
_LISTENER = "listener.name.sasl_plaintext"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with skipped_where_unavailable(), Kdc() as running:
        yield running


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.add("orders")


@pytest.fixture(scope="module")
def cluster(kdc: Kdc) -> Iterator[KafkaCluster]:
    service = "kafka/127.0.0.1"
    entry = f'{_MODULE} keyTab="{kdc.add(service)}" principal="{service}@{REALM}";'
    with skipped_where_unavailable():
        running = KafkaCluster(
            listeners=("PLAINTEXT", "SASL_PLAINTEXT"),
            overrides={
                f"{_LISTENER}.sasl.enabled.mechanisms": "GSSAPI",
                f"{_LISTENER}.gssapi.sasl.jaas.config": entry,
                f"{_LISTENER}.gssapi.connections.max.reauth.ms": SESSION_MS,
                "sasl.kerberos.service.name": "kafka",
            },
            jvm_options=(f"-Djava.security.krb5.conf={kdc.config}",),
        )
        with running:
            running.create_topic(TOPIC)
            yield running


@pytest.fixture(autouse=True)
def own_realm(kdc: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let this process find the realm, and no ticket; return the path of its credential cache."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    return tmp_path / "cache"


def options(cluster: KafkaCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        **more,
    }


def logins(producer: Producer) -> float:
    """Return how many sessions were renewed."""
    total: float = producer.metrics()["producer-metrics"]["successful-reauthentication-total"]
    return total


def test_a_keytab_gives_tickets(cluster: KafkaCluster, keytab: Path) -> None:
    with Producer(**options(cluster, sasl_kerberos_keytab=keytab)) as producer:
        producer.send(TOPIC, b"x").result(WAIT_S)
        assert producer.metrics()["producer-metrics"]["successful-authentication-total"] >= 1


def test_a_ticket_of_the_credential_cache_is_used_as_by_kafka_python(
    cluster: KafkaCluster, kdc: Kdc, keytab: Path, own_realm: Path
) -> None:
    kdc.log_in("orders", keytab, own_realm)
    given = options(cluster, sasl_kerberos_service_name="kafka")
    for producer in (kafka.KafkaProducer(**given), KafkaProducer(**given)):
        producer.send(TOPIC, b"x").get(WAIT_S)
        producer.close()
    named = {"sasl_kerberos_principal": f"orders@{REALM}", "sasl_kerberos_domain_name": "127.0.0.1"}
    with Producer(**options(cluster, **named)) as producer:
        producer.send(TOPIC, b"x").result(WAIT_S)


def test_tickets_end_and_the_key_changes_while_records_flow(cluster: KafkaCluster, kdc: Kdc) -> None:
    keytab = kdc.add("short", ticket_s=TICKET_S)
    with Producer(**options(cluster, sasl_kerberos_keytab=keytab)) as producer:
        end = time.monotonic() + WAIT_S
        futures = [producer.send(TOPIC, b"x")]
        futures[0].result(WAIT_S)
        kdc.write_keytab("short")
        while kdc.tickets_given("short") < 3 or logins(producer) < 2:
            assert time.monotonic() < end
            futures.append(producer.send(TOPIC, b"x"))
            producer.flush(WAIT_S)
        offsets = [future.result(WAIT_S).offset for future in futures]
        metrics = producer.metrics()["producer-metrics"]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert metrics["failed-reauthentication-total"] == 0
    assert metrics["record-retry-total"] == 0


def test_a_login_without_a_ticket_fails_at_once_and_says_what_to_do(cluster: KafkaCluster) -> None:
    with Producer(**options(cluster)) as producer, pytest.raises(AuthenticationError, match="run kinit"):
        producer.send(TOPIC, b"x").result(WAIT_S)


def test_records_wait_for_a_kdc_that_hangs_and_fail_with_its_name(
    cluster: KafkaCluster, kdc: Kdc, keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"max_block_ms": 1500, "socket_connection_setup_timeout_ms": 500, "reconnect_backoff_max_ms": 100}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config_with(silent.getsockname()[1])))
        waited = Stopwatch()
        with Producer(**options(cluster, sasl_kerberos_keytab=keytab, **limits)) as producer:
            with pytest.raises(KafkaError, match=r"a KDC or a name server does not answer"):
                producer.send(TOPIC, b"x")
            assert 1400 < waited.ms < 10_000
