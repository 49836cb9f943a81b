"""GSSAPI logins against a Kerberos library that stands in for the system's; with a real KDC: tests/kafka."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import mechanism_factory
from kafkaprod.errors import AuthenticationError, ConfigError, ConnectionLostError, KafkaError
from kafkaprod.security.kerberos import TICKETS_KEPT_S, KerberosMechanism, Tickets
from kafkaprod.security.kerberos_errors import login_error
from kafkaprod.threads import make_thread
from tests.support.net.fake_kerberos import (
    ExpiredCredentialsError,
    FakeKerberos,
    GSSError,
    KerberosBroker,
    MissingCredentialsError,
)
from tests.support.threads import thread_count

HOST = "broker.example.com"


def config(**options: Any) -> ProducerConfig:
    login = {"bootstrap_servers": HOST, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    return ProducerConfig.from_options({**login, **options})


def log_in(mechanism: KerberosMechanism, broker: KerberosBroker) -> list[bytes]:
    """Exchange tokens to the end; return the client's."""
    sent: list[bytes] = []
    token: bytes | None = mechanism.first()
    while token is not None:
        sent.append(token)
        error_code, answer = broker.answer(token)
        assert not error_code
        token = mechanism.step(answer)
    return sent


def test_a_login_has_three_rounds_and_chooses_no_security_layer() -> None:
    library, broker = FakeKerberos(), KerberosBroker(offer=b"\7\0\xff\xff")
    sent = log_in(KerberosMechanism(HOST, Tickets(config(), library)), broker)
    assert sent == [b"ticket for kafka@broker.example.com", b"", b"wrapped \1\0\0\0"]
    assert (library.caches, library.principals) == ([None], [None])


def test_options_name_the_service_and_the_client(tmp_path: Path) -> None:
    (tmp_path / "me.keytab").touch()
    library = FakeKerberos()
    options = config(
        sasl_kerberos_service_name="brokers",
        sasl_kerberos_domain_name="all.example.com",
        sasl_kerberos_principal="me@EXAMPLE.COM",
        sasl_kerberos_keytab=str(tmp_path / "me.keytab"),
    )
    KerberosMechanism(HOST, Tickets(options, library)).first()
    assert (library.services, library.principals) == (["brokers@all.example.com"], ["me@EXAMPLE.COM"])
    assert library.caches[0] is not None
    assert library.caches[0].startswith("MEMORY:")


def test_the_factory_gives_each_login_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeKerberos()
    monkeypatch.setitem(sys.modules, "gssapi", library)  # type: ignore[arg-type]
    factory = mechanism_factory(config())
    assert factory is not None
    assert [factory(host).first() for host in ("a", "b")] == [b"ticket for kafka@a", b"ticket for kafka@b"]


def test_a_missing_package_and_an_unreadable_keytab_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafkaprod\[kerberos\]'"):
        mechanism_factory(config())
    monkeypatch.setitem(sys.modules, "gssapi", FakeKerberos())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sasl_kerberos_keytab=/no/such cannot be read"):
        mechanism_factory(config(sasl_kerberos_keytab="/no/such"))


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([b"forged"], "has failed: Message stream modified"),
        ([b"proof", b"\1\0\0\0"], "has failed: A token had an invalid"),
        ([b"proof", b"wrapped \6\0\0\0"], r"demands a security layer \(offer 6\)"),
        ([b"proof", b"wrapped \1"], "security layers in 1 bytes, expected 4"),
        ([b"proof", b"wrapped \1\0\0\0", b"more"], "sent 4 bytes after the end of the login"),
    ],
)
def test_a_broker_that_breaks_the_rules_is_refused(answers: list[bytes], text: str) -> None:
    mechanism = KerberosMechanism(HOST, Tickets(config(), FakeKerberos()))
    mechanism.first()
    for answer in answers[:-1]:
        mechanism.step(answer)
    with pytest.raises(AuthenticationError, match=f"GSSAPI: .*kafka@{HOST} .*{text}"):
        mechanism.step(answers[-1])


def test_a_broker_that_proves_nothing_or_speaks_first_is_refused() -> None:
    mechanism = KerberosMechanism(HOST, Tickets(config(), FakeKerberos(proves_identity=False)))
    with pytest.raises(AuthenticationError, match="before the client's first one"):
        mechanism.step(b"proof")
    mechanism.first()
    mechanism.step(b"proof")
    with pytest.raises(AuthenticationError, match="has not proved its identity"):
        mechanism.step(b"wrapped \1\0\0\0")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (GSSError(7, "Server not found"), AuthenticationError, r"Server not found \(check sasl_kerberos_service_name"),
        (GSSError(156, "Cannot contact any KDC"), ConnectionLostError, "is the KDC up"),
        (GSSError(37, "Clock skew too great"), AuthenticationError, "by NTP"),
        (GSSError(24, "Preauthentication failed"), AuthenticationError, "write the keytab again"),
        (MissingCredentialsError(0, "No credentials were supplied"), AuthenticationError, "run kinit"),
        (ExpiredCredentialsError(0, "Ticket expired"), AuthenticationError, "the ticket has ended: run kinit"),
        (GSSError(60, "Generic error"), AuthenticationError, "Generic error$"),
        (GSSError(60, "Success"), AuthenticationError, "Unspecified GSS failure"),
    ],
)
def test_what_the_library_raises_becomes_an_error_with_its_remedy(
    error: GSSError, kind: type[KafkaError], text: str
) -> None:
    def fail() -> None:
        raise error

    mechanism = KerberosMechanism(HOST, Tickets(config(), FakeKerberos(fetch=fail)))
    with pytest.raises(kind, match=f"^GSSAPI: no ticket for kafka@{HOST}: .*{text}"):
        mechanism.first()
    with_keytab = str(login_error(error, "x", has_keytab=True))
    assert "run kinit" not in with_keytab or "has ended" in with_keytab


def test_a_library_without_stores_of_credentials_is_named() -> None:
    def fail() -> None:
        raise NotImplementedError("no credential store extension")

    with pytest.raises(ConfigError, match=r"sasl_kerberos_keytab cannot be used .* use MIT Kerberos"):
        Tickets(config(), FakeKerberos(fetch=fail)).begin(HOST)


def test_a_kdc_that_hangs_ends_the_login_and_holds_one_thread() -> None:
    is_up = threading.Event()
    tickets = Tickets(config(socket_connection_setup_timeout_ms=50), FakeKerberos(fetch=lambda: is_up.wait(30)))
    before = thread_count()
    for _ in range(3):
        with pytest.raises(ConnectionLostError, match=r"no ticket for kafka@.* within 0.04 s: a KDC"):
            tickets.begin(HOST)
    assert thread_count() == before + 1
    is_up.set()
    for _ in range(200):  # the hanging call ends first
        try:
            token = tickets.begin(HOST)[1]
        except ConnectionLostError:
            continue
        assert token == f"ticket for kafka@{HOST}".encode()
        return
    pytest.fail("no login came through")


def test_a_thread_that_cannot_start_fails_one_login_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    tickets = Tickets(config(), FakeKerberos())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(
                RuntimeError, match="can't start new thread"
            ):  # a connection that is lost, for its caller
                tickets.begin(HOST)
    assert tickets.begin(HOST)[1] == f"ticket for kafka@{HOST}".encode()


def test_logins_of_many_brokers_take_turns() -> None:
    running: list[int] = []
    most: list[int] = []

    def fetch() -> None:
        running.append(1)
        most.append(len(running))
        running.pop()

    tickets = Tickets(config(), FakeKerberos(fetch=fetch))
    threads = [make_thread(tickets.begin, "login", f"b{number}") for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == [1] * 8


def test_tickets_that_a_broker_refused_are_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "me.keytab").touch()
    now_s = [0.0]
    library = FakeKerberos()
    tickets = Tickets(config(sasl_kerberos_keytab=str(tmp_path / "me.keytab")), library, lambda: now_s[0])
    log_in(KerberosMechanism(HOST, tickets), KerberosBroker())
    log_in(KerberosMechanism("other", tickets), KerberosBroker())
    now_s[0] = TICKETS_KEPT_S
    for _ in range(2):  # the first one is refused, and ends without a word
        KerberosMechanism(HOST, tickets).first()
    KerberosMechanism(HOST, tickets).first()  # refused again, too early for others
    first, second = dict.fromkeys(library.caches)
    assert library.caches == [first, first, first, second, second]
