"""Connections that come too fast: those of an address are held and closed, those above the broker's rate wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.quotas import quotas_at, set_quota
from tests.support.net.raw_client import RawClient

RATE = 5
AT_ONCE = 10 * RATE
LOOPBACK = "127.0.0.1"


def is_served(address: str, stack: ExitStack) -> tuple[bool, float]:
    """Whether a new connection, which stays open, is answered and not closed; and after how many seconds."""
    began_s = time.monotonic()
    client = stack.enter_context(RawClient(address))
    try:
        client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    except ConnectionError:
        return False, time.monotonic() - began_s
    return True, time.monotonic() - began_s


@pytest.fixture(params=["alone", "cluster"])
def addresses(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Where a quota is set, and where it counts."""
    if request.param == "alone":
        with EmbeddedBroker() as broker:
            yield [broker.bootstrap_servers] * 2
    else:
        with EmbeddedCluster(brokers=2) as cluster:
            yield [broker.address for broker in cluster.brokers]


def test_connections_of_an_address_above_its_quota_are_held_and_closed(addresses: list[str]) -> None:
    taker, other = addresses
    set_quota(taker, "connection_creation_rate", RATE, LOOPBACK, "ip")
    wait_until(lambda: quotas_at(other) != {}, "the quota to be everywhere")
    with ExitStack() as stack:
        tried = [is_served(other, stack) for _ in range(AT_ONCE + 2)]
    assert [is_good for is_good, _ in tried[:RATE]] == [True] * RATE
    held_s = [seconds for is_good, seconds in tried if not is_good]
    assert held_s
    assert min(held_s) > 0.05


def test_connections_above_the_brokers_rate_wait_and_are_served() -> None:
    options = {"max.connection.creation.rate": RATE}
    with EmbeddedBroker(options=options) as broker, ExitStack() as stack:
        tried = [is_served(broker.bootstrap_servers, stack) for _ in range(AT_ONCE + 3)]
    assert all(is_good for is_good, _ in tried)
    assert sum(seconds for _, seconds in tried) >= 0.4
