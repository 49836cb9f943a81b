"""Tickets of a real KDC: how they come, how they are renewed, and what is reported where there is none."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gssapi
import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthenticationError, ConnectionLostError
from kafkaprod.security.kerberos import KerberosMechanism, Tickets
from tests.kafka.kdc import REALM, Kdc
from tests.kafka.ports import free_ports
from tests.support.kafka.fixtures_kafka import skipped_where_unavailable
from tests.support.net.kerberos_service import KerberosService

HOST = "127.0.0.1"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with skipped_where_unavailable(), Kdc() as running:
        yield running


@pytest.fixture(scope="module")
def service(kdc: Kdc) -> Path:
    """The keytab of the brokers."""
    return kdc.add(f"kafka/{HOST}")


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.add("orders")


@pytest.fixture(autouse=True)
def cache(kdc: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let this process find the realm, and no ticket; return the path of its credential cache."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    return tmp_path / "cache"


def tickets(**options: Any) -> Tickets:
    login = {"bootstrap_servers": HOST, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    return Tickets(ProducerConfig.from_options({**login, **options}), gssapi)


def log_in(service: Path, found: Tickets) -> str:
    return KerberosService(service).take(KerberosMechanism(HOST, found))


def log_in_until_it_fails(service: Path, found: Tickets) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        log_in(service, found)


def test_a_keytab_gives_one_ticket_for_many_logins(kdc: Kdc, service: Path, keytab: Path) -> None:
    given = kdc.tickets_given("orders")
    found = tickets(sasl_kerberos_keytab=keytab)
    assert [log_in(service, found) for _ in range(10)] == [f"orders@{REALM}"] * 10
    assert kdc.tickets_given("orders") == given + 1


def test_the_credential_cache_is_read_for_each_login(kdc: Kdc, service: Path, keytab: Path, cache: Path) -> None:
    found = tickets()
    with pytest.raises(AuthenticationError, match="run kinit"):
        log_in(service, found)
    kdc.log_in("orders", keytab, cache)
    assert log_in(service, found) == f"orders@{REALM}"
    assert log_in(service, tickets(sasl_kerberos_principal=f"orders@{REALM}")) == f"orders@{REALM}"
    with pytest.raises(AuthenticationError, match=r"check sasl_kerberos_principal|run kinit"):
        log_in(service, tickets(sasl_kerberos_principal=f"another@{REALM}"))


def test_a_key_that_has_changed_is_named_until_the_keytab_has_it(kdc: Kdc, service: Path) -> None:
    keytab = kdc.add("rotated")
    kdc.change_key("rotated")
    found = tickets(sasl_kerberos_keytab=keytab)
    with pytest.raises(AuthenticationError, match="write the keytab again"):
        log_in(service, found)
    kdc.write_keytab("rotated")
    assert log_in(service, found) == f"rotated@{REALM}"


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"sasl_kerberos_principal": "another"}, "check sasl_kerberos_principal"),
        ({"sasl_kerberos_service_name": "nosuch"}, "not found in Kerberos database .check sasl_kerberos_service_name"),
        ({"sasl_kerberos_principal": "orders@OTHER.TEST"}, "check sasl_kerberos_principal"),
    ],
)
def test_names_that_are_wrong_are_named(service: Path, keytab: Path, options: dict[str, str], remedy: str) -> None:
    with pytest.raises(AuthenticationError, match=remedy):
        log_in(service, tickets(sasl_kerberos_keytab=keytab, **options))


def test_a_client_that_the_kdc_has_not_is_named(kdc: Kdc, service: Path) -> None:
    keytab = kdc.add("gone")
    kdc.remove("gone")
    with pytest.raises(AuthenticationError, match="the Kerberos database has no such client"):
        log_in(service, tickets(sasl_kerberos_keytab=keytab))


def test_a_ticket_that_has_ended_is_named(kdc: Kdc, service: Path, keytab: Path, cache: Path) -> None:
    kdc.log_in("orders", keytab, cache, ticket_s=1)
    with pytest.raises(AuthenticationError, match="the ticket has ended"):
        log_in_until_it_fails(service, tickets())
    kdc.log_in("orders", keytab, cache)
    assert log_in(service, tickets()) == f"orders@{REALM}"


@pytest.mark.parametrize(
    ("is_listening", "text"), [(True, r"within 0.4 s: a KDC .* does not answer"), (False, "is the KDC up")]
)
def test_a_kdc_that_hangs_or_is_down_ends_within_the_bound(
    kdc: Kdc, service: Path, keytab: Path, monkeypatch: pytest.MonkeyPatch, is_listening: bool, text: str
) -> None:
    (port,) = free_ports(1)
    found = tickets(sasl_kerberos_keytab=keytab, socket_connection_setup_timeout_ms=500 if is_listening else 10_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config_with(silent.getsockname()[1] if is_listening else port)))
        begun_s = time.monotonic()
        with pytest.raises(ConnectionLostError, match=text):
            log_in(service, found)
        assert time.monotonic() - begun_s < 8


def test_a_broker_without_the_key_says_so(kdc: Kdc, service: Path, keytab: Path) -> None:
    found = tickets(sasl_kerberos_keytab=keytab)
    assert log_in(service, found) == f"orders@{REALM}"
    other = kdc.add("kafka/other")
    with pytest.raises(AuthenticationError, match=f"kafka@{HOST} has failed: .*the broker's keytab lacks the key"):
        log_in(other, found)
