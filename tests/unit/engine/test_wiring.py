from __future__ import annotations

import ssl
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.config import ProducerConfig
from kafkaprod.config.secret import Secret
from kafkaprod.engine.wiring import (
    connection_settings,
    mechanism_factory,
    password_mechanism,
    request_bytes,
    tls_context,
)
from kafkaprod.errors import AuthenticationError, ConfigError
from kafkaprod.security.sasl import PlainMechanism
from kafkaprod.security.scram import ScramMechanism

LOGIN = {"sasl_plain_username": "user", "sasl_plain_password": "secret"}
REFUSED = AuthenticationError("refused")


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"bootstrap_servers": "h:1"}, **options)


def test_plaintext_has_neither_tls_nor_login() -> None:
    settings = connection_settings(config())
    assert settings.tls is None
    assert settings.mechanism is None


@pytest.mark.parametrize(("batch", "most"), [(0, 2 << 20), (1_000_000, 8_000_000), (8 << 20, 32 << 20)])
def test_request_holds_eight_full_batches(batch: int, most: int) -> None:
    assert request_bytes(config(batch_size=batch)) == most
    assert request_bytes(config(batch_size=batch, max_request_size=1000)) == 1000


@pytest.mark.parametrize(("limit", "most"), [(1000, 1000), (2**20 - 1, 2**20 - 1), (2**20, 2**21), (2**22, 2**22)])
def test_request_holds_2_mib_of_batches_unless_its_limit_is_lowered_or_higher(limit: int, most: int) -> None:
    assert request_bytes(config(max_request_size=limit)) == most


def test_options_of_connections_are_passed_on() -> None:
    chosen = config(client_id="me", max_in_flight_requests_per_connection=3)
    assert connection_settings(chosen).options is chosen


def test_given_context_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    assert tls_context(config(security_protocol="SSL", ssl_context=context)) is context


def test_built_context_checks_certificate_and_name() -> None:
    context = tls_context(config(security_protocol="SSL"))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_certificate_file_that_is_not_there_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        tls_context(config(security_protocol="SSL", ssl_cafile="/nowhere.pem"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("PLAIN", PlainMechanism), ("SCRAM-SHA-256", ScramMechanism), ("SCRAM-SHA-512", ScramMechanism)],
)
def test_each_login_gets_a_mechanism_of_its_own(name: str, kind: type) -> None:
    make = mechanism_factory(config(security_protocol="SASL_PLAINTEXT", sasl_mechanism=name, **LOGIN))
    assert make is not None
    assert make("broker").name == name
    assert make("broker") is not make("broker")
    assert isinstance(password_mechanism(name)("user", "secret"), kind)


@pytest.mark.parametrize("place", ["file", "env"])
def test_password_in_a_file_or_variable_is_read_when_a_login_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    path = tmp_path / "password"

    def write(text: str) -> None:
        path.write_text(text + "\n", encoding="utf-8")
        monkeypatch.setenv("KAFKA_PASSWORD", text)

    write("first")
    source = {"file": f"file:{path}", "env": "env:KAFKA_PASSWORD"}[place]
    options = {"sasl_plain_username": "user", "sasl_plain_password": source}
    settings = connection_settings(config(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **options))
    assert settings.may_be_accepted_later(REFUSED)
    assert settings.mechanism is not None
    login = settings.mechanism("broker")
    write("second")
    assert login.first() == b"\0user\0second"
    assert login.step(b"") is None
    write("")
    assert settings.mechanism("broker").first() == b"\0user\0second"  # as while the file is written


def test_credentials_can_be_replaced() -> None:
    settings = connection_settings(config(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **LOGIN))
    assert settings.credentials is not None
    assert settings.mechanism is not None
    assert not settings.may_be_accepted_later(REFUSED)
    settings.credentials.replace("other", Secret("word"))
    assert settings.may_be_accepted_later(REFUSED)
    assert settings.mechanism("broker").first() == b"\0other\0word"


def test_token_logins_can_change_and_connections_without_logins_cannot() -> None:
    tokens = config(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth_cb=lambda _: ("token", 0.0))
    assert connection_settings(tokens).may_be_accepted_later(REFUSED)
    assert not connection_settings(config()).may_be_accepted_later(REFUSED)


def test_certificates_can_change_but_make_no_password_another() -> None:
    expired, alert = AuthenticationError("expired"), ssl.SSLError("expired")
    alert.reason = "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    expired.__cause__ = alert
    by_options = connection_settings(config(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", **LOGIN))
    by_context = connection_settings(config(security_protocol="SSL", ssl_context=ssl.create_default_context()))
    for settings in (by_options, by_context):
        assert settings.may_be_accepted_later(expired)
        assert not settings.may_be_accepted_later(REFUSED)
    assert not connection_settings(config()).may_be_accepted_later(expired)


@pytest.mark.parametrize("missing", LOGIN)
def test_login_without_credentials_is_refused(missing: str) -> None:
    some = {name: value for name, value in LOGIN.items() if name != missing}
    with pytest.raises(ConfigError, match="sasl_plain"):
        mechanism_factory(config(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **some))


@pytest.mark.parametrize(
    ("module", "question", "replaced"),
    [
        ("gevent.monkey", "is_module_patched", "socket"),
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_producer_in_a_patched_process_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, module: str, question: str, replaced: str
) -> None:
    library = module.partition(".")[0]
    for answer in (False, True):
        patcher = SimpleNamespace(**{question: lambda name, answer=answer: answer and name == replaced})
        monkeypatch.setitem(sys.modules, module, patcher)  # type: ignore[arg-type]
        if not answer:
            assert connection_settings(config())
    with pytest.raises(ConfigError, match=rf"{library} has replaced {replaced} in this process.*AsyncProducer"):
        Producer(bootstrap_servers="h:1")
    with pytest.raises(ConfigError, match=library):
        ClusterClient(config())
