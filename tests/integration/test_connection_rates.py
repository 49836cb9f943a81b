"""Connections that come too fast: those of an address are held and closed, those above the broker's rate wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.quotas import quotas_at, set_quota
from tests.support.clock import Stopwatch
from tests.support.net.raw_client import is_served

LOOPBACK = "127.0.0.1"
WINDOW_S = 10
MOST_TRIED = 100


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
    """With one a second, the eleventh of the first second is closed at its end."""
    taker, other = addresses
    waited = Stopwatch()
    set_quota(taker, "connection_creation_rate", 1, LOOPBACK, "ip")
    wait_until(lambda: quotas_at(other) != {}, "the quota to be everywhere")
    with ExitStack() as stack:
        tried = 0
        while is_served(other, stack):
            tried += 1
            assert tried < MOST_TRIED
    assert tried > 0
    assert waited.ms > 900


def test_connections_above_the_brokers_rate_wait_and_are_served() -> None:
    rate, excess = 5, 3
    with EmbeddedBroker(options={"max.connection.creation.rate": rate}) as broker, ExitStack() as stack:
        waited = Stopwatch()
        assert all(is_served(broker.bootstrap_servers, stack) for _ in range(WINDOW_S * rate + excess))
        assert waited.ms > excess / rate * 1000 - 100
