"""SASL mechanisms of other packages, and certificates as text."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import mechanism_factory, tls_context
from kafkaprod.errors import ConfigError
from kafkaprod.security import plugins
from kafkaprod.security.sasl import Mechanism, PlainMechanism
from tests.support.net.certificates import Authority


def config(**options: Any) -> ProducerConfig:
    login = {"bootstrap_servers": "broker:9098", "security_protocol": "SASL_SSL", "sasl_mechanism": "X-TICKET"}
    return ProducerConfig.from_options({**login, **options})


class Ticket(PlainMechanism):
    name = "X-TICKET"


def tickets(chosen: ProducerConfig) -> Callable[[], Mechanism]:
    if chosen.sasl_plain_username is None:
        raise ValueError("no user")
    return lambda: Ticket("u", "p")


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("x-ticket", f"{__name__}:tickets", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry] if group == plugins.GROUP else [])


def test_a_mechanism_of_an_installed_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    factory = mechanism_factory(config(sasl_mechanism="x-ticket", sasl_plain_username="u"))
    assert factory is not None
    assert factory("broker").name == "X-TICKET"


def test_a_mechanism_that_fails_or_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(ConfigError, match=r"X-TICKET: .*tickets failed with ValueError: no user"):
        mechanism_factory(config(sasl_mechanism="X-TICKET"))
    with pytest.raises(ConfigError, match=r"X-OTHER is not one of .*there: X-TICKET"):
        mechanism_factory(config(sasl_mechanism="X-OTHER"))
    with pytest.raises(ConfigError, match="expected one of PLAIN"):
        config(sasl_mechanism="X TICKET")


@pytest.mark.parametrize(
    ("make", "user"),
    [
        (partial(Ticket, "u", "p"), b"u"),
        (lambda: Ticket("u", "p"), b"u"),
        (lambda host: Ticket(host, "p"), b"broker"),
        (lambda host, *, user="x": Ticket(host, "p"), b"broker"),
    ],
)
def test_the_function_of_a_package_takes_the_host_or_nothing(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Mechanism], user: bytes
) -> None:
    monkeypatch.setitem(globals(), "tickets", lambda chosen: make)
    install(monkeypatch)
    factory = mechanism_factory(config())
    assert factory is not None
    assert factory("broker").first() == b"\0" + user + b"\0p"


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes | None:
    """Connect both in memory; the client's certificate as the server sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    first = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    second = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (first, second):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return second.getpeercert(binary_form=True)


@pytest.mark.parametrize("names", ["own", "java"])
def test_certificates_may_be_text(tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("client", [], is_for_clients=True, password=b"open")
    server = authority.issue("server", ["127.0.0.1"]).server_context()
    server.load_verify_locations(authority.cafile)
    server.verify_mode = ssl.CERT_REQUIRED
    texts = [path.read_text(encoding="utf-8") for path in (authority.cafile, own.certfile, own.keyfile)]
    monkeypatch.setenv("CLIENT_KEY", texts[2])
    spelled = {
        "own": ("ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem"),
        "java": ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
    }[names]
    options = dict(zip(spelled, [*texts[:2], "env:CLIENT_KEY"], strict=True))
    left = set(Path(tmp_path).iterdir())
    chosen = ProducerConfig.from_options(
        {"bootstrap_servers": "h:1", "security_protocol": "SSL", "ssl_password": "open", **options}
    )
    context = tls_context(chosen)
    assert context is not None
    assert handshake(context, server) is not None
    assert set(Path(tmp_path).iterdir()) == left
    assert "BEGIN" not in repr(chosen)


def test_text_that_is_no_certificate_is_refused_without_showing_it(tmp_path: Path) -> None:
    base = {"bootstrap_servers": "h:1", "security_protocol": "SSL"}
    own = Authority(tmp_path).issue("client", [], is_for_clients=True)
    text = own.certfile.read_text(encoding="utf-8")
    for options, name in (
        ({"ssl_ca_pem": "canary"}, "ssl_ca_pem of 6 characters"),
        ({"ssl_certificate_pem": text, "ssl_key_pem": "canary"}, "ssl_certificate_pem and ssl_key_pem cannot"),
        ({"ssl_key_pem": "canary"}, "without ssl_certificate_pem"),
        ({"ssl_ca_pem": "canary", "ssl_cafile": "x"}, "ssl_cafile and ssl_ca_pem are given together"),
    ):
        with pytest.raises(ConfigError, match=name) as caught:
            tls_context(ProducerConfig.from_options({**base, **options}))
        assert "canary" not in str(caught.value)
