"""Delegation tokens at the controller: lives, rights and bounds, by a table of times."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from kafkaprod.broker.controller import tokens
from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.envelopes import opened, seal
from kafkaprod.broker.controller.events import SweepTokens
from kafkaprod.broker.controller.requests import on_request
from kafkaprod.broker.metadata.tokens import TokenConfig, principal_parts
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkaprod.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kafkaprod.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkaprod.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkaprod.protocol.schema import Request

ANN, BOB, EVE = "User:ann", "User:bob", "User:eve"
CONFIG = TokenConfig("key", max_lifetime_ms=1_000, expiry_time_ms=100, expiry_check_interval_ms=5_000)
WALL_MS = 1_000_000


class Desk:
    """A controller, and what is asked of it."""

    def __init__(self, config: TokenConfig = CONFIG, batches: Any = ()) -> None:
        self.now_ms = 0
        self.controller = Controller("c", session_timeout_ms=100, seed=1, now_ms=0, tokens=config, batches=batches)
        self.controller.context.wall_offset_ms = WALL_MS

    def ask(self, request: Request, version: int, by: str) -> Any:
        """The response to a client's request, through a broker's envelope."""
        sealed = EnvelopeRequest.decode(seal(request, version, by, "127.0.0.1").encode(0), 0)
        answers: list[Any] = []
        on_request(self.controller, sealed, self.now_ms, answers.append)
        while self.controller.turn(self.now_ms):
            pass
        return opened(EnvelopeResponse.decode(answers[0].encode(0), 0), request, version)

    def create(self, owner: str = ANN, requester: str = ANN, renewers: tuple[str, ...] = (BOB,), life: int = -1) -> Any:
        (owner_type, owner_name), *others = map(principal_parts, (owner, *renewers))
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_type,
            owner_principal_name=owner_name,
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in others],
            max_lifetime_ms=life,
        )
        return self.ask(request, 3, requester)

    def renew(self, token: Any, by: str = ANN, period: int = -1) -> tuple[int, int | None]:
        return _end(self.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period), 2, by))

    def expire(self, token: Any, by: str = ANN, period: int = 0) -> tuple[int, int | None]:
        return _end(self.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period), 2, by))

    @property
    def known(self) -> dict[str, Any]:
        return self.controller.context.image.tokens


def _end(answer: Any) -> tuple[int, int | None]:
    return answer.error_code, None if answer.error_code else answer.expiry_timestamp_ms - WALL_MS


def test_a_token_has_an_id_and_the_keys_hmac_of_it() -> None:
    desk = Desk()
    made = desk.create(renewers=(BOB, EVE), requester=EVE)
    assert (made.error_code, len(made.token_id)) == (ErrorCode.NONE, 22)
    assert made.hmac == hmac.digest(b"key", made.token_id.encode(), hashlib.sha512)
    assert "hmac=<64 bytes>" in repr(made)
    assert (made.principal_type, made.principal_name) == ("User", "ann")
    assert (made.token_requester_principal_type, made.token_requester_principal_name) == ("User", "eve")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms) == (WALL_MS, WALL_MS + 100)
    assert made.max_timestamp_ms == WALL_MS + 1_000
    token = desk.known[made.token_id]
    assert (token.owner, token.requester, token.renewers) == (ANN, EVE, [BOB, EVE])
    assert (token.issue_timestamp, token.max_timestamp) == (WALL_MS, WALL_MS + 1_000)


@pytest.mark.parametrize(
    ("life", "max_ms", "end_ms"), [(-1, 1_000, 100), (0, 1_000, 100), (50, 50, 50), (2**62, 1_000, 100)]
)
def test_no_token_lives_longer_than_the_options_let_it(life: int, max_ms: int, end_ms: int) -> None:
    token = Desk().create(life=life)
    assert (token.max_timestamp_ms - WALL_MS, token.expiry_timestamp_ms - WALL_MS) == (max_ms, end_ms)


def test_times_that_do_not_fit_are_the_last_that_do() -> None:
    desk = Desk(TokenConfig("key", max_lifetime_ms=2**63 - 1, expiry_time_ms=2**63 - 1))
    token = desk.create()
    assert token.max_timestamp_ms == token.expiry_timestamp_ms == 2**63 - 1
    assert desk.renew(token, period=2**63 - 1)[1] == 2**63 - 1 - WALL_MS
    assert desk.expire(token, period=2**63 - 1)[1] == 2**63 - 1 - WALL_MS


def test_a_renewal_moves_the_end_up_to_the_longest_life() -> None:
    desk = Desk()
    token = desk.create()
    desk.now_ms = 60
    assert desk.renew(token, BOB) == (ErrorCode.NONE, 160)
    assert desk.renew(token, ANN, 10) == (ErrorCode.NONE, 70)
    for desk.now_ms in range(70, 1_000, 90):
        assert desk.renew(token)[0] == ErrorCode.NONE
    assert desk.renew(token) == (ErrorCode.NONE, 1_000)
    desk.now_ms = 1_001
    assert desk.renew(token) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, None)


def test_an_expiration_brings_the_end_nearer_or_removes_the_token() -> None:
    desk = Desk()
    token = desk.create()
    assert desk.expire(token, BOB, 30) == (ErrorCode.NONE, 30)
    assert desk.expire(token, BOB, 5_000) == (ErrorCode.NONE, 1_000)
    assert desk.expire(token, ANN, 0) == (ErrorCode.NONE, 0)
    desk.now_ms = 1
    assert desk.expire(token, ANN, 0) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, None)
    assert desk.expire(token, ANN, -1) == (ErrorCode.NONE, 1)
    assert desk.known == {}
    assert desk.expire(token) == desk.renew(token) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, None)


def test_only_the_owner_and_the_renewers_change_a_token() -> None:
    """Not the one who has made it for another (KIP-373)."""
    desk = Desk()
    token = desk.create(owner=ANN, requester=EVE)
    assert desk.renew(token, EVE) == desk.expire(token, EVE) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, None)
    assert desk.renew(CreateDelegationTokenResponse(hmac=b"x"))[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(
    ("owner", "renewers", "error"),
    [
        ("Group:ann", (), ErrorCode.INVALID_PRINCIPAL_TYPE),
        (ANN, ("Group:x",), ErrorCode.INVALID_PRINCIPAL_TYPE),
        ("User:" + "x" * 2_036, (), ErrorCode.INVALID_REQUEST),
        ("User:" + "x" * 2_035, (), ErrorCode.NONE),
        (ANN, (BOB,) * 255, ErrorCode.INVALID_REQUEST),
        (ANN, (BOB,) * 254, ErrorCode.NONE),
    ],
)
def test_what_a_token_may_be_made_of(owner: str, renewers: tuple[str, ...], error: ErrorCode) -> None:
    assert Desk().create(owner=owner, renewers=renewers).error_code == error


def test_tokens_are_bounded_for_each_user_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS_OF_USER", 2)
    monkeypatch.setattr(tokens, "MAX_TOKENS", 3)
    desk = Desk()
    wanted = ((ANN, EVE), (ANN, EVE), (BOB, EVE), (ANN, BOB), (BOB, BOB), (BOB, ANN))
    errors = [desk.create(owner=owner, requester=requester).error_code for owner, requester in wanted]
    full = ErrorCode.POLICY_VIOLATION
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, full, full, ErrorCode.NONE, full]


def test_without_a_key_there_are_no_tokens() -> None:
    desk = Desk(TokenConfig())
    made = desk.create()
    assert made.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert desk.renew(made)[0] == desk.expire(made)[0] == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_those_that_are_over_are_removed_by_the_timer_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_MOST_REMOVED", 2)
    desk = Desk()
    for _ in range(5):
        desk.create(life=1)
    kept = desk.create()
    desk.now_ms = 4_999
    desk.renew(kept)
    assert len(desk.known) == 6
    desk.now_ms = 50
    assert desk.renew(kept) == (ErrorCode.NONE, 150)
    desk.now_ms = 100
    answers: list[Any] = []
    desk.controller.queue.put(SweepTokens(answers.append), desk.now_ms)
    while desk.controller.turn(desk.now_ms):
        pass
    assert answers == [True]
    assert list(desk.known) == [kept.token_id]
    desk.now_ms = 5_100
    while desk.controller.turn(desk.now_ms):
        pass
    assert desk.known == {}


def test_another_start_knows_the_tokens_and_another_key_none_of_them() -> None:
    desk = Desk()
    token = desk.create()
    batches = desk.controller.log.batches()
    assert Desk(batches=batches).renew(token)[0] == ErrorCode.NONE
    assert Desk(TokenConfig("other"), batches).renew(token)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
