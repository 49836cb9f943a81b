"""Delegation tokens at a broker: who may request what, what is shown, and logins with tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.metadata.tokens import TokenConfig, password_of
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import Acl
from kafkaprod.errors import AuthenticationError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import create_delegation_token as create
from kafkaprod.protocol.messages import describe_configs, describe_delegation_token
from kafkaprod.protocol.messages import expire_delegation_token as expire
from kafkaprod.protocol.messages import renew_delegation_token as renew
from kafkaprod.security.scram import ScramMechanism
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets

KEY = "not shown anywhere"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
Describe = describe_delegation_token.DescribeDelegationTokenRequest
Owner = describe_delegation_token.DescribeDelegationTokenOwner


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    box = BrokerWithoutSockets(
        tmp_path, sasl_users={"ann": "first", "bob": "second"}, tokens=TokenConfig(KEY, expiry_time_ms=60_000)
    )
    box.user = "ann"
    return box


def made(box: BrokerWithoutSockets, version: int = 3, **fields: Any) -> create.CreateDelegationTokenResponse:
    request = create.CreateDelegationTokenRequest(max_lifetime_ms=-1, **fields)
    return box.ask(request, create.CreateDelegationTokenResponse, version)


def renewer(name: str, kind: str = "User") -> create.CreatableRenewers:
    return create.CreatableRenewers(principal_type=kind, principal_name=name)


def renewed(box: BrokerWithoutSockets, hmac: Any) -> int:
    request = renew.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1)
    return box.ask(request, renew.RenewDelegationTokenResponse, 2).error_code


def expired(box: BrokerWithoutSockets, hmac: Any, period_ms: int = -1) -> int:
    request = expire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return box.ask(request, expire.ExpireDelegationTokenResponse, 2).error_code


def shown(box: BrokerWithoutSockets, owners: list[str] | None = None) -> set[str]:
    wanted = None if owners is None else [Owner(principal_type="User", principal_name=name) for name in owners]
    answer = box.ask(Describe(owners=wanted), describe_delegation_token.DescribeDelegationTokenResponse, 3)
    assert answer.error_code == ErrorCode.NONE
    return {token.token_id for token in answer.tokens}


def log_in(box: BrokerWithoutSockets, token_id: str, password: str, mechanism: str = MECHANISMS[0]) -> Login:
    login = Login(box.broker.credentials, now_s=lambda: box.clock.wall_ms() / 1000)
    assert login.begin(mechanism)
    client = ScramMechanism(mechanism, token_id, password, delegation_token=True)
    answer = client.step(login.step(client.first()))
    assert answer is not None
    client.step(login.step(answer))
    return login


def password(token: create.CreateDelegationTokenResponse) -> str:
    return password_of(bytes(token.hmac)).decode()


def allow(box: BrokerWithoutSockets, operation: int, resource_type: int, name: str, user: str = "ann") -> None:
    box.broker.acls.add([Acl(resource_type, name, acls.LITERAL, f"User:{user}", "*", operation, acls.ALLOW)])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_is_its_requesters(box: BrokerWithoutSockets, version: int) -> None:
    token = made(box, version, renewers=[renewer("bob")])
    assert (token.error_code, token.principal_type, token.principal_name) == (ErrorCode.NONE, "User", "ann")
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 60_000
    assert shown(box) == {token.token_id}
    box.user = "bob"
    assert renewed(box, token.hmac) == ErrorCode.NONE
    assert shown(box, ["ann"]) == {token.token_id}
    assert expired(box, token.hmac) == ErrorCode.NONE
    assert shown(box) == set()


def test_who_has_not_logged_in_has_to_do_with_no_token(box: BrokerWithoutSockets) -> None:
    box.user = None
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert made(box).error_code == renewed(box, b"x") == expired(box, b"x") == refused
    answer = box.ask(Describe(owners=None), describe_delegation_token.DescribeDelegationTokenResponse, 1)
    assert answer.error_code == refused


def test_a_broker_that_starts_without_its_secret_key_lets_no_token_in(
    box: BrokerWithoutSockets, tmp_path: Path
) -> None:
    token = made(box)
    assert log_in(box, token.token_id, password(token)).user == "ann"
    box.broker.close()
    again = BrokerWithoutSockets(tmp_path, sasl_users={"ann": "first"})
    by_no_key = password_of(TokenConfig().hmac_of(token.token_id)).decode()
    for tried in (password(token), by_no_key):
        with pytest.raises(AuthenticationError):
            log_in(again, token.token_id, tried)


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, sasl_users={"ann": "first"})
    box.user = "ann"
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    refused = made(box)
    assert (refused.error_code, refused.issue_timestamp_ms, refused.token_id) == (disabled, -1, "")
    assert renewed(box, b"x") == expired(box, b"x") == disabled
    answer = box.ask(Describe(owners=[]), describe_delegation_token.DescribeDelegationTokenResponse, 3)
    assert answer.error_code == disabled
    box.broker.close()


def test_a_token_for_another_user_needs_a_right(box: BrokerWithoutSockets) -> None:
    allow(box, acls.READ, acls.USER, "User:bob")
    other: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    refused = made(box, **other)
    assert (refused.error_code, refused.principal_name, refused.token_requester_principal_name) == (
        *(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "bob", "ann"),
    )
    allow(box, acls.CREATE_TOKENS, acls.USER, "User:bob")
    token = made(box, **other)
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "ann")
    assert renewed(box, token.hmac) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert log_in(box, token.token_id, password(token)).user == "bob"


def test_owners_and_renewers_are_users(box: BrokerWithoutSockets) -> None:
    assert made(box, renewers=[renewer("x", "Group")]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    group = made(box, owner_principal_type="Group", owner_principal_name="x")
    assert group.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_others_see_a_token_by_a_right_to_it_or_to_its_owner(box: BrokerWithoutSockets) -> None:
    first, second = made(box).token_id, made(box).token_id
    box.user = "eve"
    for name in (first, second):
        allow(box, acls.READ, acls.DELEGATION_TOKEN, name, user="carl")
    allow(box, acls.READ, acls.USER, "User:ann", user="carl")
    assert shown(box) == set()
    allow(box, acls.DESCRIBE, acls.DELEGATION_TOKEN, first, user="eve")
    assert shown(box) == {first}
    assert shown(box, ["bob"]) == shown(box, []) == set()
    allow(box, acls.DESCRIBE_TOKENS, acls.USER, "User:ann", user="eve")
    assert shown(box) == shown(box, ["ann"]) == {first, second}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_with_a_token_is_its_owners_and_makes_no_tokens(box: BrokerWithoutSockets, mechanism: str) -> None:
    token = made(box)
    login = log_in(box, token.token_id, password(token), mechanism)
    assert (login.user, login.is_by_token) == ("ann", True)
    box.login = login
    assert made(box).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert renewed(box, token.hmac) == expired(box, token.hmac) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_and_a_password_are_not_mistaken_for_each_other(box: BrokerWithoutSockets) -> None:
    token = made(box)
    for user, word in ((token.token_id, "wrong"), ("ann", "first"), ("missing", password(token))):
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            log_in(box, user, word)
    login = Login(box.broker.credentials)
    login.begin(MECHANISMS[0])
    client = ScramMechanism(MECHANISMS[0], token.token_id, password(token))
    answer = client.step(login.step(client.first()))
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        login.step(answer or b"")


def test_a_login_ends_with_the_token_that_it_was_made_with(box: BrokerWithoutSockets) -> None:
    """A renewal moves the end of later logins only; one with a token that is over is at its end already."""
    token = made(box)
    login = log_in(box, token.token_id, password(token))
    assert (login.lifetime_ms, login.is_over) == (60_000, False)
    box.clock.advance(30_000)
    assert renewed(box, token.hmac) == ErrorCode.NONE
    later = log_in(box, token.token_id, password(token))
    box.clock.advance(30_000)
    assert (login.is_over, later.is_over) == (True, False)
    box.clock.advance(30_001)
    assert log_in(box, token.token_id, password(token)).is_over
    box.broker.standing.sweep_tokens()
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        log_in(box, token.token_id, password(token))


def test_a_restart_keeps_tokens_and_the_key_is_shown_nowhere(box: BrokerWithoutSockets, tmp_path: Path) -> None:
    token = made(box)
    box.broker.close()
    again = BrokerWithoutSockets(tmp_path, sasl_users={"ann": "first"}, tokens=TokenConfig(KEY))
    assert log_in(again, token.token_id, password(token)).user == "ann"
    resource = describe_configs.DescribeConfigsResource(resource_type=4, resource_name="0")
    answer = again.ask(
        describe_configs.DescribeConfigsRequest(resources=[resource]), describe_configs.DescribeConfigsResponse, 4
    )
    (entry,) = [each for each in answer.results[0].configs if each.name == "delegation.token.secret.key"]
    assert (entry.value, entry.is_sensitive, entry.config_type, entry.config_source) == (None, True, 9, 4)
    assert KEY not in repr(again.broker.config) + repr(answer)
    again.broker.close()


def test_an_owner_is_answered_as_it_was_given(box: BrokerWithoutSockets) -> None:
    answer = made(box, owner_principal_type="User:ann", owner_principal_name="n" * 32_767)
    assert answer.error_code
    assert (answer.principal_type, len(answer.principal_name)) == ("User:ann", 32_767)
