from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.errors import AuthenticationError, ConfigError
from kafkaprod.security.oauthbearer import BearerToken, CallbackTokenProvider, OAuthBearerMechanism
from kafkaprod.security.sasl import Mechanism, PlainMechanism


class Provider:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def token(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_plain_sends_one_message_and_accepts_only_an_empty_answer() -> None:
    mechanism: Mechanism = PlainMechanism("alice", "s\u00e9cret")
    assert mechanism.name == "PLAIN"
    assert mechanism.first() == b"\0alice\0s\xc3\xa9cret"
    assert mechanism.step(b"") is None
    with pytest.raises(AuthenticationError, match="challenge of 1 bytes"):
        mechanism.step(b"x")


def test_plain_sends_the_authorization_id_when_given() -> None:
    assert PlainMechanism("alice", "secret", authorization_id="bob").first() == b"bob\0alice\0secret"


@pytest.mark.parametrize(("user", "password"), [("", "p"), ("u", ""), ("u\0", "p"), ("u", "p\0")])
def test_plain_refuses_credentials_it_cannot_send(user: str, password: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PlainMechanism(user, password)
    assert "p\0" not in str(caught.value)


def test_plain_repr_hides_the_password() -> None:
    assert "canary" not in repr(PlainMechanism("alice", "canary"))


def test_oauthbearer_wraps_the_token_as_rfc_7628_says() -> None:
    mechanism: Mechanism = OAuthBearerMechanism(Provider("abc.def-123"))
    assert mechanism.name == "OAUTHBEARER"
    assert mechanism.first() == b"n,,\x01auth=Bearer abc.def-123\x01\x01"
    assert mechanism.step(b"") is None


def test_oauthbearer_sends_extensions() -> None:
    token = BearerToken("abc", {"logicalCluster": "lkc-1"})
    assert OAuthBearerMechanism(Provider(token)).first() == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"


def test_oauthbearer_takes_the_callback_of_confluent_kafka() -> None:
    seen = []

    def oauth_cb(config: str) -> tuple[Any, ...]:
        seen.append(config)
        return ("abc", 1234.5, "principal", {"x": "1"})

    assert (
        OAuthBearerMechanism(CallbackTokenProvider(oauth_cb, "cfg")).first() == b"n,,\x01auth=Bearer abc\x01x=1\x01\x01"
    )
    assert seen == ["cfg"]
    assert OAuthBearerMechanism(CallbackTokenProvider(lambda _: ("abc", 1.0))).first().count(b"\x01") == 3


def test_oauthbearer_acknowledges_a_refusal_with_one_byte_and_then_stops() -> None:
    mechanism = OAuthBearerMechanism(Provider("abc"))
    assert mechanism.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="after its refusal"):
        mechanism.step(b"")


def test_oauthbearer_refuses_an_oversized_answer() -> None:
    with pytest.raises(AuthenticationError, match="exceeds 4096"):
        OAuthBearerMechanism(Provider("abc")).step(b"x" * 4097)


@pytest.mark.parametrize(
    "answer",
    ["", "a b", "a\x01b", "a\n", "\u00e9", BearerToken("abc", {"auth": "x"}), BearerToken("abc", {"x": "a\x01b"})],
)
def test_oauthbearer_refuses_tokens_that_would_break_the_message(answer: Any) -> None:
    with pytest.raises(ConfigError):
        OAuthBearerMechanism(Provider(answer)).first()


def test_a_failing_provider_becomes_an_authentication_error_with_its_cause() -> None:
    cause = RuntimeError("no network, secret=canary")
    with pytest.raises(AuthenticationError) as caught:
        OAuthBearerMechanism(Provider(cause)).first()
    assert caught.value.__cause__ is cause
    assert "canary" not in str(caught.value)


def test_the_token_is_in_no_repr_and_no_error() -> None:
    assert "canary" not in repr(BearerToken("canary"))
    with pytest.raises(ConfigError) as caught:
        OAuthBearerMechanism(Provider("canary !")).first()
    assert "canary" not in str(caught.value)
