"""Passwords and certificates that rotate under a running producer: no record is lost, nothing is restarted."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.compat import confluent_kafka
from kafkaprod.errors import AuthenticationError, ConfigError
from tests.support.broker.rotating_broker import RotatingBroker, issue
from tests.support.net.certificates import Authority

USER, OLD, NEW = "ann", "first-word", "second-word"
BOUND_S = 30
RECORDS = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RotatingBroker]:
    rotating = RotatingBroker(tmp_path / "data", sasl_users={USER: OLD})
    yield rotating
    rotating.close()


def login(broker: RotatingBroker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "reconnect.backoff.max.ms": 100,
    }


def offsets_after(producer: Producer, rotate: Callable[[], None]) -> list[int]:
    """Send before, while and after the secrets rotate; return the offsets of all records."""
    futures = [producer.send("t", b"before") for _ in range(RECORDS)]
    producer.flush()
    rotate()
    futures += [producer.send("t", b"after") for _ in range(RECORDS)]
    return sorted(future.result(BOUND_S).offset for future in futures)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_password_in_a_file_rotates_after_the_broker_has_refused_the_old_one(
    broker: RotatingBroker, tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "password"
    path.write_text(OLD + "\n", encoding="utf-8")
    refused = threading.Event()

    def listen(record: logging.LogRecord) -> bool:
        if "SASL_AUTHENTICATION_FAILED" in record.getMessage():
            refused.set()
        return True

    caplog.handler.addFilter(listen)
    with caplog.at_level(logging.DEBUG, "kafkaprod"), Producer(login(broker, mechanism, f"file:{path}")) as producer:
        queued = []

        def rotate() -> None:
            broker.restart(sasl_users={USER: NEW})
            queued.append(producer.send("t", b"while"))
            assert refused.wait(BOUND_S)
            path.write_text(NEW + "\n", encoding="utf-8")

        assert offsets_after(producer, rotate) == [*range(RECORDS), *range(RECORDS + 1, 2 * RECORDS + 1)]
        assert queued[0].result(BOUND_S).offset == RECORDS
    assert OLD not in caplog.text
    assert NEW not in caplog.text


def test_password_in_a_variable_rotates(broker: RotatingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", OLD)
    with Producer(login(broker, "PLAIN", "env:KAFKA_PASSWORD")) as producer:

        def rotate() -> None:
            monkeypatch.setenv("KAFKA_PASSWORD", NEW)
            broker.restart(sasl_users={USER: NEW})

        assert offsets_after(producer, rotate) == list(range(2 * RECORDS))


def test_credentials_are_replaced_while_the_producer_runs(broker: RotatingBroker) -> None:
    with Producer(login(broker, "SCRAM-SHA-512", OLD)) as producer:

        def rotate() -> None:
            producer.set_sasl_credentials("bob", NEW)
            broker.restart(sasl_users={"bob": NEW})

        assert offsets_after(producer, rotate) == list(range(2 * RECORDS))
        producer.check()  # on a connection of its own
        with pytest.raises(ConfigError, match="empty"):
            producer.set_sasl_credentials("bob", "")


def test_refused_literal_password_fails_records_by_its_name(broker: RotatingBroker) -> None:
    with Producer(login(broker, "PLAIN", OLD)) as producer:
        producer.send("t", b"x").result(BOUND_S)
        broker.restart(sasl_users={USER: NEW})
        error = producer.send("t", b"x").exception(BOUND_S)
        assert isinstance(error, AuthenticationError)
        producer.set_sasl_credentials(USER, NEW)
        assert producer.send("t", b"x").result(BOUND_S).offset == 1


def test_other_interfaces_replace_credentials_too(broker: RotatingBroker) -> None:
    reports: list[Any] = []
    theirs = confluent_kafka.Producer(login(broker, "PLAIN", OLD))
    theirs.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
    theirs.flush()
    theirs.set_sasl_credentials(USER, NEW)

    async def run() -> None:
        async with AsyncProducer(login(broker, "PLAIN", OLD)) as producer:
            await producer.send_and_wait("t", b"x")
            producer.set_sasl_credentials(USER, NEW)
            broker.restart(sasl_users={USER: NEW})
            async with asyncio.timeout(BOUND_S):
                await producer.send_and_wait("t", b"x")

    asyncio.run(run())
    theirs.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
    theirs.flush()
    assert reports == [None, None]
    with pytest.raises(TypeError, match="must be str"):
        theirs.set_sasl_credentials(None, NEW)  # type: ignore[arg-type]
    without = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    without.set_sasl_credentials(USER, NEW)  # as there: no effect
    with Producer(bootstrap_servers=broker.bootstrap) as native, pytest.raises(ConfigError, match="PLAIN and SCRAM"):
        native.set_sasl_credentials(USER, NEW)


def test_certificates_and_their_authority_rotate(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    broker = RotatingBroker(tmp_path / "data", tls_files=issue(tmp_path, "one"))
    request.addfinalizer(broker.close)
    options = {
        "security.protocol": "SSL",
        "ssl_cafile": tmp_path / "client-ca",
        "ssl_certfile": tmp_path / "client-certificate",
        "ssl_keyfile": tmp_path / "client-key",
        "reconnect.backoff.max.ms": 100,
    }
    with Producer({"bootstrap.servers": broker.bootstrap, **options}) as producer:
        assert offsets_after(producer, lambda: broker.restart(tls_files=issue(tmp_path, "two"))) == list(
            range(2 * RECORDS)
        )


@pytest.mark.parametrize(
    ("version", "flaw", "reason"),
    [
        (ssl.TLSVersion.TLSv1_2, {"valid_days": -1}, "it has expired"),
        (ssl.TLSVersion.TLSv1_3, {"valid_days": -1}, "it has expired"),
        (ssl.TLSVersion.TLSv1_2, {"is_self_signed": True}, "does not trust"),
        (ssl.TLSVersion.TLSv1_3, {"is_self_signed": True}, "does not trust"),
        (ssl.TLSVersion.TLSv1_3, None, "missing"),  # an older alert of it names no certificate
    ],
)
def test_refused_certificate_is_named_until_a_new_one_is_loaded(
    tmp_path: Path, version: ssl.TLSVersion, flaw: dict[str, Any] | None, reason: str
) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", ["127.0.0.1"])
    context = ssl.create_default_context(cafile=authority.cafile)
    context.minimum_version = context.maximum_version = version
    if flaw is not None:
        refused = authority.issue("refused", ["client"], is_for_clients=True, **flaw)
        context.load_cert_chain(refused.certfile, refused.keyfile)
    with (
        EmbeddedBroker(topics={"t": 1}, tls_files=(server.certfile, server.keyfile, authority.cafile)) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", ssl_context=context) as producer,
    ):
        with pytest.raises(AuthenticationError, match=f"refused this client's certificate.*{reason}") as caught:
            producer.send("t", b"x")
        assert "fit this port" not in str(caught.value)
        valid = authority.issue("valid", ["client"], is_for_clients=True)
        context.load_cert_chain(valid.certfile, valid.keyfile)
        end_s = time.monotonic() + BOUND_S
        while True:
            try:
                assert producer.send("t", b"x").result(BOUND_S).offset == 0
                break
            except AuthenticationError:
                assert time.monotonic() < end_s
