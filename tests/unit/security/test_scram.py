from __future__ import annotations

import time

import pytest

from kafkaprod.errors import AuthenticationError, ConfigError
from kafkaprod.security import scram
from kafkaprod.security.scram import MAX_MESSAGE_BYTES, ScramMechanism, random_nonce, saslprep
from tests.support.net.scram_server import ScramServer


def client(**arguments: object) -> ScramMechanism:
    return ScramMechanism("SCRAM-SHA-256", "user", "pencil", **arguments)  # type: ignore[arg-type]


def test_the_exchange_of_rfc_7677_is_reproduced() -> None:
    mechanism = client(nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    assert mechanism.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = mechanism.step(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert mechanism.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(("name", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_login_succeeds_against_an_independent_server(name: str, hash_name: str) -> None:
    server = ScramServer("p\u00e4ss,w=rd", hash_name=hash_name)
    mechanism = ScramMechanism(name, "us,e=r", "p\u00e4ss,w=rd")
    client_first = mechanism.first()
    assert b"n=us=2Ce=3Dr," in client_first
    client_final = mechanism.step(server.server_first(client_first))
    assert client_final is not None
    assert mechanism.step(server.server_final(client_final)) is None


def test_a_delegation_token_login_says_so() -> None:
    assert client(delegation_token=True).first().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    "forge",
    [
        lambda m, n: m.replace(n, ""),
        lambda m, n: m.replace(n + "server", n),  # not longer than ours
        lambda m, n: m.replace(n, n[::-1]),
        lambda m, n: m.replace(n, n[:-1]),
        lambda m, n: m.replace("server", "ser\x7fver"),
        lambda m, n: m.replace("server", "ser ver"),
        lambda m, n: m.replace("r=", "R="),
        lambda m, n: m.replace(",s=", ",x="),
        lambda m, n: m.replace(",i=", ",j="),
        lambda m, n: m.split(",i=")[0],
        lambda m, n: m.split(",s=")[0],
        lambda m, n: "",
        lambda m, n: "m=ext," + m,
        lambda m, n: "e=other-error",
        lambda m, n: ",".join(reversed(m.split(","))),
        lambda m, n: m.split(",s=")[0] + ",s=,i=4096",
        lambda m, n: m.split(",s=")[0] + ",s=!!!!,i=4096",
        lambda m, n: m.split(",s=")[0] + ",s=\u00e9,i=4096",
        *[
            lambda m, n, i=i: m.split(",i=")[0] + f",i={i}"
            for i in ("", "0", "1", "4095", "-1", "-4096", "+4096", " 4096", "4096 ", "4_096", "0x1000", "4096.0")
        ],
        *[
            lambda m, n, i=i: m.split(",i=")[0] + f",i={i}"
            for i in ("1000001", "2147483647", "4294971392", "9" * 10, "9" * 3000, "\u0664\u0660\u0669\u0666", "nan")
        ],
    ],
)
def test_a_forged_server_first_message_is_refused(forge: object) -> None:
    mechanism = client(nonce=lambda: "fixed-nonce-of-client")
    message = ScramServer().server_first(mechanism.first()).decode()
    forged = forge(message, "fixed-nonce-of-client")  # type: ignore[operator]
    assert forged != message
    with pytest.raises(AuthenticationError):
        mechanism.step(forged.encode())


def login(mechanism: ScramMechanism, server: ScramServer, server_first: bytes) -> bytes | None:
    """Let the client answer `server_first`; the server computes over what it meant to send."""
    final = mechanism.step(server_first)
    assert final is not None
    proof = final.decode().rsplit(",p=", 1)[1]
    return mechanism.step(server.server_final(f"c=biws,r={server.nonce},p={proof}".encode()))


def test_every_single_changed_character_of_server_first_prevents_the_login() -> None:
    server = ScramServer()
    for position in range(len(server.server_first(b"n,,n=user,r=abcdefgh"))):
        mechanism = client(nonce=lambda: "abcdefgh")
        message = bytearray(server.server_first(mechanism.first()))
        message[position] ^= 0x01
        with pytest.raises(AuthenticationError):  # refused at once, or the proofs do not match
            login(mechanism, server, bytes(message))


def test_every_single_changed_character_of_server_final_is_refused() -> None:
    server = ScramServer()
    first = client(nonce=lambda: "abcdefgh").first()
    server_first = server.server_first(first)
    final = client(nonce=lambda: "abcdefgh").step(server_first)
    assert final is not None
    honest = server.server_final(final)
    refused = 0
    for position in range(len(honest)):
        mechanism = client(nonce=lambda: "abcdefgh")
        mechanism.first()
        mechanism.step(server_first)
        message = bytearray(honest)
        message[position] ^= 0x01
        with pytest.raises(AuthenticationError):
            mechanism.step(bytes(message))
        refused += 1
    assert refused == len(honest)


@pytest.mark.parametrize("final", [b"", b"v=", b"x=AAAA", b"e=invalid-proof", b"v=AAAA", b"V=AAAA", b"\xff\xfe"])
def test_a_forged_server_final_message_is_refused(final: bytes) -> None:
    mechanism = client()
    mechanism.step(ScramServer().server_first(mechanism.first()))
    with pytest.raises(AuthenticationError):
        mechanism.step(final)


def test_a_server_that_skips_the_first_message_is_refused() -> None:
    with pytest.raises(AuthenticationError):
        client().step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(AuthenticationError):
        client().step(b"")


def test_a_message_after_the_final_one_is_refused() -> None:
    server, mechanism = ScramServer(), client()
    final = mechanism.step(server.server_first(mechanism.first()))
    assert final is not None
    verdict = server.server_final(final)
    mechanism.step(verdict)
    with pytest.raises(AuthenticationError, match="after its final"):
        mechanism.step(verdict)


def test_iteration_bounds_are_checked_before_anything_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bytes:
        raise AssertionError("hashed before the bound was checked")

    monkeypatch.setattr(scram.hashlib, "pbkdf2_hmac", never)
    started = time.process_time()
    for iterations in (1, 4095, 1_000_001, 2**31 - 1):
        with pytest.raises(AuthenticationError, match="outside 4096"):
            client(nonce=lambda: "n").step(f"r=nx,s=AAAA,i={iterations}".encode())
    assert time.process_time() - started < 1


def test_the_iteration_maximum_can_be_lowered() -> None:
    with pytest.raises(AuthenticationError, match=r"outside 4096\.\.8192"):
        client(nonce=lambda: "n", max_iterations=8192).step(b"r=nx,s=AAAA,i=8193")
    with pytest.raises(ConfigError, match="max_iterations=4095"):
        client(max_iterations=4095)


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 65_536, 16 * 1024 * 1024])
def test_messages_above_the_cap_are_refused(size: int) -> None:
    with pytest.raises(AuthenticationError, match="exceeds the limit of 4096"):
        client().step(b"r" * size)


def test_nonces_hold_192_bits_and_do_not_repeat() -> None:
    nonces = {random_nonce() for _ in range(20_000)}
    assert len(nonces) == 20_000
    assert all(len(nonce) == 32 and "," not in nonce for nonce in nonces)


@pytest.mark.parametrize(
    "arguments", [("SCRAM-SHA-1", "u", "p"), ("SCRAM-SHA-256", "", "p"), ("SCRAM-SHA-512", "u", "")]
)
def test_senseless_credentials_are_refused(arguments: tuple[str, str, str]) -> None:
    with pytest.raises(ConfigError):
        ScramMechanism(*arguments)


def test_the_password_is_in_no_repr_and_no_error() -> None:
    mechanism = ScramMechanism("SCRAM-SHA-256", "user", "canary-secret", nonce=lambda: "n")
    with pytest.raises(AuthenticationError) as caught:
        mechanism.step(b"e=canary\n\x1b[31m" + b"x" * 300)
    assert "canary-secret" not in repr(mechanism) + repr(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_password_is_hashed_as_kafka_stores_it_unless_a_preparation_is_given() -> None:
    server = ScramServer("\u2460")
    raw = ScramMechanism("SCRAM-SHA-256", "user", "\u2460")
    final = raw.step(server.server_first(raw.first()))
    assert final is not None
    assert raw.step(server.server_final(final)) is None
    server = ScramServer("1")
    prepared = ScramMechanism("SCRAM-SHA-256", "user", "\u2460", prepare=saslprep)
    final = prepared.step(server.server_first(prepared.first()))
    assert final is not None
    assert prepared.step(server.server_final(final)) is None


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep_examples_of_rfc_4013(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\u0627a\u0627", "\ue000", "\u0221", "\ufffd"])
def test_saslprep_refuses_prohibited_text(text: str) -> None:
    with pytest.raises(ConfigError):
        saslprep(text)
