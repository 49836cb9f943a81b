"""The broker's half of a login, against our own client's half and against forgers."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kafkaprod.broker.calls.login import MECHANISMS, Credentials, Login
from kafkaprod.errors import AuthenticationError
from kafkaprod.security.sasl import PlainMechanism
from kafkaprod.security.scram import ScramMechanism

USERS = {"ada": "lovelace", "o=k,x": "pässwörd", "bob": "builder"}
CREDENTIALS = Credentials(USERS)
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def begun(mechanism: str) -> Login:
    login = Login(CREDENTIALS)
    assert login.begin(mechanism)
    return login


def scram_login(mechanism: str, user: str, password: str) -> Login:
    login, client = begun(mechanism), ScramMechanism(mechanism, user, password)
    answer = login.step(client.first())
    final = client.step(answer)
    assert final is not None
    assert client.step(login.step(final)) is None
    return login


@pytest.mark.parametrize("user", list(USERS))
@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_user_logs_in_and_knows_the_broker(mechanism: str, user: str) -> None:
    assert scram_login(mechanism, user, USERS[user]).user == user


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("eve", "lovelace"), ("ada", "lovelace ")])
@pytest.mark.parametrize("mechanism", SCRAM)
def test_wrong_password_and_unknown_user_fail_alike(mechanism: str, user: str, password: str) -> None:
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        scram_login(mechanism, user, password)


def test_unknown_user_gets_the_same_salt_each_time() -> None:
    salts = {CREDENTIALS.scram_keys("SCRAM-SHA-256", "eve").salt for _ in range(3)}
    assert len(salts) == 1
    assert salts != {CREDENTIALS.scram_keys("SCRAM-SHA-256", "mallory").salt}


@pytest.mark.parametrize("user", ["eve", "ada"])
def test_keys_of_known_and_unknown_users_look_alike(user: str) -> None:
    keys = {mechanism: CREDENTIALS.scram_keys(mechanism, user) for mechanism in SCRAM}
    assert len({each.salt for each in keys.values()}) == len(SCRAM)
    for mechanism, size in (("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64)):
        assert (len(keys[mechanism].stored_key), len(keys[mechanism].server_key)) == (size, size)


def test_plain_user_logs_in() -> None:
    login = begun("PLAIN")
    assert login.step(PlainMechanism("ada", "lovelace").first()) == b""
    assert login.user == "ada"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"ada\0lovelace",
        b"\0ada\0lovelace\0x",
        b"\0ada\0wrong",
        b"\0\0",
        b"\0eve\0lovelace",
        b"bob\0ada\0lovelace",
        b"\0\xff\xfe\0lovelace",
        b"\0ada\0" + b"x" * 5000,
    ],
)
def test_plain_message_that_is_wrong_is_refused(token: bytes) -> None:
    login = begun("PLAIN")
    with pytest.raises(AuthenticationError):
        login.step(token)
    assert login.user is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=ada",
        b"n,,n=ada,r=",
        b"y,,n=ada,r=x",
        b"p=tls,,n=ada,r=x",
        b"n,a=bob,n=ada,r=x",
        b"\xff",
    ],
)
def test_malformed_first_message_is_refused(message: bytes) -> None:
    login = begun("SCRAM-SHA-256")
    with pytest.raises(AuthenticationError):
        login.step(message)


def final_message(client_first: str, server_first: str, password: str, **change: str) -> str:
    """A client-final message, with some of its parts changed."""
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c={change.get('c', 'biws')},r={change.get('r', fields['r'])}"
    message = f"{client_first.removeprefix('n,,')},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return f"{without_proof},p={change.get('p', proof)}"


@pytest.mark.parametrize(
    "change",
    [
        {"r": "replayed"},
        {"c": "eSws"},
        {"p": ""},
        {"p": "AAAA"},
        {"p": "!"},
        {"p": base64.b64encode(bytes(32)).decode()},
    ],
)
def test_forged_final_message_is_refused(change: dict[str, str]) -> None:
    first = "n,,n=ada,r=abc"
    login = begun("SCRAM-SHA-256")
    good = final_message(first, login.step(first.encode()).decode(), "lovelace")
    login.step(good.encode())
    assert login.user == "ada"

    login = begun("SCRAM-SHA-256")
    bad = final_message(first, login.step(first.encode()).decode(), "lovelace", **change)
    with pytest.raises(AuthenticationError):
        login.step(bad.encode())
    assert login.user is None


def test_replayed_login_is_refused() -> None:
    first = "n,,n=ada,r=abc"
    login = begun("SCRAM-SHA-256")
    final = final_message(first, login.step(first.encode()).decode(), "lovelace").encode()
    login.step(final)
    replayed = begun("SCRAM-SHA-256")
    replayed.step(first.encode())
    with pytest.raises(AuthenticationError, match="nonce"):
        replayed.step(final)


def test_tokens_without_a_mechanism_are_refused() -> None:
    login = Login(CREDENTIALS)
    assert not login.begin("GSSAPI")
    with pytest.raises(AuthenticationError, match="no mechanism"):
        login.step(b"x")
    assert MECHANISMS == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def test_nothing_secret_is_shown() -> None:
    login = begun("PLAIN")
    assert "lovelace" not in repr((CREDENTIALS, login, vars(login)))
