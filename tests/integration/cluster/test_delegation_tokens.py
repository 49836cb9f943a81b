"""Delegation tokens in a cluster: the controller makes them, and every broker knows them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.metadata.tokens import password_of
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkaprod.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafkaprod.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tests.support.net.logins import log_in_by_scram
from tests.support.net.raw_client import RawClient

KEY = "the key of all tokens"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    options: dict[str, str | int | bool] = {
        "delegation.token.secret.key": KEY,
        "delegation.token.expiry.time.ms": 60_000,
    }
    with EmbeddedCluster(brokers=3, sasl_users={"ann": "first"}, options=options) as running:
        yield running


def logged_in(address: str, user: str, password: str, *, is_token: bool = False) -> tuple[RawClient, int]:
    """Return a client, and the error code of its login."""
    client = RawClient(address)
    return client, log_in_by_scram(client, user, password, is_token=is_token)


def described(client: RawClient) -> DescribeDelegationTokenResponse:
    return client.call(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, 3)


def test_a_token_of_one_broker_is_known_to_all_and_outlives_the_controller(cluster: EmbeddedCluster) -> None:
    owners = [logged_in(broker.address, "ann", "first")[0] for broker in cluster.brokers]
    made = owners[0].call(CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse, 3)
    assert (made.error_code, made.expiry_timestamp_ms - made.issue_timestamp_ms) == (ErrorCode.NONE, 60_000)
    assert [token.token_id for token in described(owners[0]).tokens] == [made.token_id]
    cluster.wait_until_applied()
    for owner in owners:
        (token,) = described(owner).tokens
        assert (token.token_id, bytes(token.hmac)) == (made.token_id, bytes(made.hmac))
    assert KEY not in "\n".join(cluster.history())
    cluster.controller.kill()
    cluster.controller.start()
    password = password_of(bytes(made.hmac)).decode()
    for broker in cluster.brokers:
        client, error = logged_in(broker.address, made.token_id, password, is_token=True)
        assert error == ErrorCode.NONE
        assert described(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        client.close()
    expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    gone = owners[2].call(expiry, ExpireDelegationTokenResponse, 2)
    assert gone.error_code == ErrorCode.NONE
    client, error = logged_in(cluster.brokers[2].address, made.token_id, password, is_token=True)
    assert error == ErrorCode.SASL_AUTHENTICATION_FAILED
    for each in (client, *owners):
        each.close()
