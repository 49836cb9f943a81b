"""Limits of one listener: connections to another one are not counted, and get their places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.broker.fixtures_broker import wait_until
from tests.support.clock import Stopwatch
from tests.support.net.raw_client import RawClient, is_served

LISTENERS = "PLAINTEXT://:0,OUTER:PLAINTEXT://:0"
MOST = "listener.name.outer.max.connections"
RATE = "listener.name.outer.max.connection.creation.rate"
BROKER = 4
NODE_SOURCE, ALL_SOURCE, FILE_SOURCE = 2, 3, 4
WINDOW_S = 10


class Limited(NamedTuple):
    """A broker whose second listener takes two connections."""

    node_id: str
    inner: str
    outer: str

    def set_option(self, name: str, value: str, node_id: str | None = None) -> int:
        change = AlterableConfig(name=name, config_operation=0, value=value)
        node_id = self.node_id if node_id is None else node_id
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=node_id, configs=[change])
        with RawClient(self.inner) as client:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            return client.call(request, IncrementalAlterConfigsResponse, 1).responses[0].error_code

    def shown(self) -> list[tuple[str, str | None, int]]:
        wanted = DescribeConfigsResource(
            resource_type=BROKER, resource_name=self.node_id, configuration_keys=[MOST, RATE]
        )
        with RawClient(self.inner) as client:
            answer = client.call(DescribeConfigsRequest(resources=[wanted]), DescribeConfigsResponse, 4)
        return [(config.name, config.value, config.config_source) for config in answer.results[0].configs]


@pytest.fixture(params=["alone", "cluster"])
def limited(request: pytest.FixtureRequest) -> Iterator[Limited]:
    if request.param == "alone":
        with EmbeddedBroker(listeners=LISTENERS, options={MOST: 2}) as broker:
            yield Limited("0", broker.listeners["PLAINTEXT"], broker.listeners["OUTER"])
    else:
        with EmbeddedCluster(brokers=2, listeners=LISTENERS, options={MOST: 2}) as cluster:
            listeners = cluster.broker(2).listeners
            yield Limited("2", listeners["PLAINTEXT"], listeners["OUTER"])


def count_served(address: str, count: int, stack: ExitStack) -> int:
    return sum(is_served(address, stack) for _ in range(count))


def test_a_listener_has_so_many_connections_and_others_have_theirs(limited: Limited) -> None:
    with ExitStack() as stack:
        assert count_served(limited.outer, 4, stack) == 2
        assert count_served(limited.inner, 4, stack) == 4
    with ExitStack() as later:
        wait_until(lambda: is_served(limited.outer, later), "a place after a client left")


def test_clients_change_the_limits_of_a_listener(limited: Limited) -> None:
    assert limited.shown() == [(MOST, "2", FILE_SOURCE)]
    assert limited.set_option(MOST, "3") == limited.set_option(RATE, "100", node_id="") == ErrorCode.NONE
    wait_until(lambda: limited.shown() == [(RATE, "100", ALL_SOURCE), (MOST, "3", NODE_SOURCE)], "the options")
    with ExitStack() as stack:
        assert count_served(limited.outer, 5, stack) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (MOST, "0"),
        (MOST, "many"),
        (RATE, "-1"),
        ("listener.name.OUTER.max.connections", "2"),
        ("listener.name.outer.max.connections.per.ip", "2"),
        ("listener.name..max.connections", "2"),
        ("listener.name.outer.num.partitions", "2"),
    ],
)
def test_what_is_no_limit_of_a_listener_is_refused(name: str, value: str) -> None:
    with EmbeddedBroker(listeners=LISTENERS) as broker:
        limited = Limited("0", broker.listeners["PLAINTEXT"], broker.listeners["OUTER"])
        assert limited.set_option(name, value) == ErrorCode.INVALID_CONFIG
        assert limited.shown() == []
    with pytest.raises(EmbeddedBrokerError, match=name):
        EmbeddedBroker(listeners=LISTENERS, options={name: value}).start()


def test_a_listener_above_its_rate_waits_and_others_do_not() -> None:
    rate, excess = 5, 3
    with EmbeddedBroker(listeners=LISTENERS, options={RATE: rate}) as broker, ExitStack() as stack:
        waited = Stopwatch()
        count = WINDOW_S * rate + excess
        assert count_served(broker.listeners["OUTER"], count, stack) == count
        assert waited.ms > excess / rate * 1000 - 100
        waited.restart()
        assert count_served(broker.listeners["PLAINTEXT"], count, stack) == count
        assert waited.ms < 20_000
