"""Fault proxies in front of the shared Kafka nodes, without rules at the start of each test."""

from collections.abc import Iterator

import pytest

from tests.kafka.proxy import FaultProxy
from tests.support.kafka.fixtures_kafka import ProxiedCluster


@pytest.fixture
def kafka_proxy(kafka_rig: ProxiedCluster) -> Iterator[FaultProxy]:
    """The proxy of `kafka`; what goes to ``kafka.bootstrap("PROXIED")`` passes it."""
    (proxy,) = kafka_rig.proxies.values()
    yield proxy
    proxy.clear()


@pytest.fixture
def kafka3_proxies(kafka3_rig: ProxiedCluster) -> Iterator[dict[int, FaultProxy]]:
    """The proxies of `kafka3` by node id; what goes to ``kafka3.bootstrap("PROXIED")`` passes them."""
    yield kafka3_rig.proxies
    for proxy in kafka3_rig.proxies.values():
        proxy.clear()
