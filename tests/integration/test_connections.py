"""Connections of every security protocol and mechanism to Apache Kafka, and to librdkafka's mock cluster."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.clock import SystemClock
from kafkaprod.errors import AuthenticationError
from kafkaprod.net.node import ConnectionStage
from kafkaprod.net.node_state import ConnectionFailure
from kafkaprod.net.pool import NodePool
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.security.oauthbearer import OAuthBearerMechanism
from kafkaprod.security.sasl import Mechanism, PlainMechanism
from kafkaprod.security.scram import ScramMechanism
from kafkaprod.security.tls import client_context
from tests.kafka.cluster import KafkaCluster
from tests.support.config import connection_settings, unchecked_config
from tests.support.kafka.fixtures_mock_cluster import MockCluster

LIMIT_MS = 20_000


class UnsecuredTokens:
    """Unsigned JSON web tokens, which the test broker accepts."""

    def token(self) -> str:
        now_s = int(time.time())
        parts: list[dict[str, Any]] = [{"alg": "none"}, {"sub": "alice", "iat": now_s, "exp": now_s + 600}]
        return (
            ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."
        )


MECHANISMS: dict[str, Callable[[str], Mechanism]] = {
    "PLAIN": lambda password: PlainMechanism("alice", password),
    "SCRAM-SHA-256": lambda password: ScramMechanism("SCRAM-SHA-256", "alice", password),
    "SCRAM-SHA-512": lambda password: ScramMechanism("SCRAM-SHA-512", "alice", password),
    "OAUTHBEARER": lambda _: OAuthBearerMechanism(UnsecuredTokens()),
}


def connect(bootstrap: str, settings: ConnectionSettings) -> tuple[NodePool, ConnectionFailure | None]:
    """A pool with its first node connected, or the failure of the attempt."""
    clock = SystemClock()
    pool = NodePool(settings, clock)
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    pool.set_bootstrap([(host, int(port))])
    deadline_ms = clock.now_ms() + LIMIT_MS
    while not pool.is_ready(-1, clock.now_ms()):
        assert clock.now_ms() < deadline_ms, "neither connected nor failed"
        pool.poll(100)
        failures = pool.take_failures()
        if failures:
            return pool, failures[0]
    return pool, None


def ask_for_metadata(pool: NodePool) -> InFlightRequest:
    clock = SystemClock()
    pool.send(-1, MetadataRequest(topics=[]), on_done=lambda *_: None, now_ms=clock.now_ms(), timeout_ms=LIMIT_MS)
    while True:
        finished = pool.poll(LIMIT_MS)
        if finished:
            return finished[0]


def works(bootstrap: str, settings: ConnectionSettings) -> None:
    pool, failure = connect(bootstrap, settings)
    assert failure is None, failure
    done = ask_for_metadata(pool)
    assert done.error is None
    assert done.response.brokers
    pool.close()


def refusal(bootstrap: str, settings: ConnectionSettings) -> ConnectionFailure:
    pool, failure = connect(bootstrap, settings)
    pool.close()
    assert failure is not None
    return failure


def trusting(cafile: Path | None) -> Any:
    return client_context(unchecked_config(ssl_cafile=cafile))


def test_the_mock_cluster_is_served(mock_cluster: MockCluster) -> None:
    works(mock_cluster.bootstrap, connection_settings())


@pytest.mark.external
def test_plain_text(kafka: KafkaCluster) -> None:
    works(kafka.bootstrap("PLAINTEXT"), connection_settings())


@pytest.mark.external
def test_tls(kafka: KafkaCluster) -> None:
    assert kafka.certificates is not None
    works(kafka.bootstrap("SSL"), connection_settings(tls=trusting(kafka.certificates.ca)))
    failure = refusal(kafka.bootstrap("SSL"), connection_settings(tls=trusting(kafka.certificates.other_ca)))
    assert isinstance(failure.error, AuthenticationError)
    assert failure.stage is ConnectionStage.TLS


@pytest.mark.external
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_login(kafka: KafkaCluster, listener: str, mechanism: str) -> None:
    assert kafka.certificates is not None
    tls = trusting(kafka.certificates.ca) if listener == "SASL_SSL" else None
    make = MECHANISMS[mechanism]
    works(kafka.bootstrap(listener), connection_settings(tls=tls, mechanism=lambda host: make("alice-secret")))


@pytest.mark.external
@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name != "OAUTHBEARER"])
def test_a_wrong_password_is_refused(kafka: KafkaCluster, mechanism: str) -> None:
    make = MECHANISMS[mechanism]
    settings = connection_settings(mechanism=lambda host: make("wrong-canary"))
    failure = refusal(kafka.bootstrap("SASL_PLAINTEXT"), settings)
    assert isinstance(failure.error, AuthenticationError)
    assert failure.stage is ConnectionStage.SASL
    assert "canary" not in str(failure.error)


@pytest.mark.external
def test_a_mechanism_the_broker_does_not_offer_is_refused_with_the_list(kafka: KafkaCluster) -> None:
    class Unheard(PlainMechanism):
        name = "UNHEARD-OF"

    settings = connection_settings(mechanism=lambda host: Unheard("alice", "x"))
    failure = refusal(kafka.bootstrap("SASL_PLAINTEXT"), settings)
    assert isinstance(failure.error, AuthenticationError)
    assert "SCRAM-SHA-512" in str(failure.error)


@pytest.mark.external
@pytest.mark.parametrize(("listener", "hint"), [("SSL", "security_protocol"), ("SASL_PLAINTEXT", "security_protocol")])
def test_a_plain_client_on_a_secured_port_is_told_so(kafka: KafkaCluster, listener: str, hint: str) -> None:
    pool, failure = connect(kafka.bootstrap(listener), connection_settings())
    if failure is None:  # a SASL listener answers ApiVersions before the login, and closes at the next request
        completion = ask_for_metadata(pool)
        assert completion.error is not None
    else:
        assert hint in str(failure.error)
    pool.close()
