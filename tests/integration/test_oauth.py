"""Logins by tokens of an identity provider: options from each place, the end of tokens, and failures."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthenticationError, KafkaError
from tests.support.net.token_issuer import CLIENT_ID, SECRET, TokenIssuer, unsigned_token

TOPIC = "t"
WAIT_S = 30.0


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={TOPIC: 1}, sasl_oauthbearer=True) as running:
        yield running


def options(broker: EmbeddedBroker, issuer: TokenIssuer, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": SECRET,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        **more,
    }


def test_one_token_serves_all_connections(broker: EmbeddedBroker, issuer: TokenIssuer) -> None:
    with Producer(options(broker, issuer)) as producer:
        assert producer.send(TOPIC, b"x").result(WAIT_S).offset == 0
    assert len(issuer.asked) == 1


def test_a_properties_file_is_enough(broker: EmbeddedBroker, issuer: TokenIssuer, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in options(broker, issuer).items()), encoding="utf-8")
    with Producer(ProducerConfig.from_file(path)) as producer:
        assert producer.send(TOPIC, b"x").result(WAIT_S).offset == 0


def test_commands_log_in(broker: EmbeddedBroker, issuer: TokenIssuer, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    text = "".join(f"{k}={v}\n" for k, v in options(broker, issuer).items() if k != "bootstrap.servers")
    path.write_text(text, encoding="utf-8")
    (tmp_path / "rows.txt").write_text("a\nb\n", encoding="utf-8")
    command = [sys.executable, "-m", "kafkaprod", "load", "rows.txt", "-t", TOPIC, "-b", broker.bootstrap_servers]
    done = subprocess.run([*command, "-F", str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert issuer.asked


def test_logins_are_renewed_under_load_before_their_tokens_end(broker: EmbeddedBroker, issuer: TokenIssuer) -> None:
    issuer.lifetime_s = 1.0
    with Producer(options(broker, issuer)) as producer:
        end = time.monotonic() + WAIT_S
        futures = []
        while len(issuer.asked) < 5 and time.monotonic() < end:
            futures.append(producer.send(TOPIC, b"x"))
            producer.flush(WAIT_S)
        offsets = [future.result(WAIT_S).offset for future in futures]
        failed = producer.metrics().get("failed-reauthentication-total", 0)
    assert len(issuer.asked) >= 5
    assert offsets == list(range(len(offsets)))
    assert not failed


def test_a_provider_that_is_down_for_a_while_delays_and_loses_nothing(
    broker: EmbeddedBroker, issuer: TokenIssuer
) -> None:
    issuer.lifetime_s = 0.5
    with Producer(options(broker, issuer)) as producer:
        producer.send(TOPIC, b"0").result(WAIT_S)
        issuer.stop()
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:  # until the login is over: a record then waits
            future = producer.send(TOPIC, b"x")
            try:
                future.result(0.5)
            except TimeoutError:
                break
        else:
            pytest.fail("the login never ended")
        issuer.start()
        assert future.result(WAIT_S).offset > 0


def test_a_wrong_secret_is_reported_at_once(broker: EmbeddedBroker, issuer: TokenIssuer) -> None:
    wrong = options(broker, issuer) | {"sasl.oauthbearer.client.secret": "canary"}
    with Producer(wrong) as producer, pytest.raises(AuthenticationError) as caught:
        producer.send(TOPIC, b"x").result(WAIT_S)
    assert f"token endpoint {issuer.url}: HTTP 401 invalid_client: unknown client or wrong secret" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_token_that_the_broker_refuses_is_fetched_again(broker: EmbeddedBroker, issuer: TokenIssuer) -> None:
    def useless(subject: str, lifetime_s: float) -> str:
        return "not.a.token"

    issuer.sign = useless
    with Producer(options(broker, issuer, **{"max.block.ms": 5000})) as producer:
        with pytest.raises(AuthenticationError, match="invalid_token"):
            producer.send(TOPIC, b"x").result(WAIT_S)
        issuer.sign = unsigned_token
        end = time.monotonic() + WAIT_S
        while True:
            try:
                assert producer.send(TOPIC, b"x").result(WAIT_S).offset == 0
                break
            except AuthenticationError:
                assert time.monotonic() < end
                time.sleep(0.05)


def test_an_endpoint_that_is_down_is_in_the_error(broker: EmbeddedBroker, issuer: TokenIssuer) -> None:
    issuer.stop()
    chosen = options(broker, issuer, **{"max.block.ms": 500})
    with Producer(chosen) as producer, pytest.raises(KafkaError) as caught:
        producer.send(TOPIC, b"x")
    assert f"token endpoint {issuer.url} cannot be used" in str(caught.value)


def test_jwt_bearer_reaches_the_broker(broker: EmbeddedBroker, issuer: TokenIssuer, tmp_path: Path) -> None:
    (tmp_path / "assertion").write_text("a.b.c", encoding="utf-8")
    chosen = options(broker, issuer) | {
        "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "sasl.oauthbearer.assertion.file": str(tmp_path / "assertion"),
    }
    del chosen["sasl.oauthbearer.client.id"], chosen["sasl.oauthbearer.client.secret"]
    with Producer(chosen) as producer:
        assert producer.send(TOPIC, b"x").result(WAIT_S).offset == 0
    assert issuer.asked[0].form["assertion"] == "a.b.c"
