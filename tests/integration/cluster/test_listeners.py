"""Several listeners of each broker of a cluster: clients get the addresses of the one through which they came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.errors import AuthenticationError, BootstrapError
from tests.kafka.ports import free_ports
from tests.kafka.proxy import FaultProxy
from tests.support.net.certificates import Authority

TIMEOUT_S = 30.0
LOGIN: dict[str, Any] = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "ann", "sasl_password": "secret"}
LISTENERS = "PLAINTEXT://:0,SSL://:0,SASL_PLAINTEXT://:0,SASL_SSL://:0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[EmbeddedCluster]:
    pem = authority.issue("broker", names=["127.0.0.1"])
    with EmbeddedCluster(
        brokers=2,
        listeners=LISTENERS,
        topics={"orders": 2},
        tls_files=(pem.certfile, pem.keyfile),
        sasl_users={"ann": "secret"},
    ) as running:
        yield running


def addresses_of(cluster: EmbeddedCluster, listener: str) -> set[str]:
    return set(cluster.listeners[listener].split(","))


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_of_each_protocol_reach_all_brokers(
    cluster: EmbeddedCluster, authority: Authority, listener: str
) -> None:
    options: dict[str, Any] = {"security_protocol": listener}
    if listener.endswith("SSL"):
        options["ssl_cafile"] = str(authority.cafile)
    if listener.startswith("SASL"):
        options |= LOGIN
    with Producer(bootstrap_servers=cluster.broker(1).listeners[listener], **options) as producer:
        for partition in (0, 1):
            leader = cluster.leader("orders", partition)
            assert producer.send("orders", b"v", partition=partition).result(TIMEOUT_S).partition == partition
            assert leader.listeners[listener] in addresses_of(cluster, listener)


def test_a_listener_lets_none_in_who_does_not_log_in(cluster: EmbeddedCluster) -> None:
    address = cluster.listeners["SASL_PLAINTEXT"]
    wrong = LOGIN | {"sasl_password": "other", "security_protocol": "SASL_PLAINTEXT"}
    with pytest.raises((AuthenticationError, BootstrapError)), Producer(bootstrap_servers=address, **wrong) as producer:
        producer.send("orders", b"v").result(TIMEOUT_S)


def test_brokers_keep_their_addresses_and_new_ones_get_others(cluster: EmbeddedCluster) -> None:
    before = [broker.listeners for broker in cluster.brokers]
    assert cluster.bootstrap_servers == cluster.listeners["PLAINTEXT"]
    cluster.broker(1).kill()
    cluster.broker(1).start()
    assert [broker.listeners for broker in cluster.brokers] == before
    added = cluster.add_broker()
    assert list(added.listeners) == list(before[0])
    everything = [address for broker in cluster.brokers for address in broker.listeners.values()]
    assert len(set(everything)) == 12
    nodes = AdminClient({"bootstrap.servers": added.address}).list_topics(timeout=TIMEOUT_S).brokers
    assert {f"{node.host}:{node.port}" for node in nodes.values()} == addresses_of(cluster, "PLAINTEXT")
    cluster.remove_broker(added.id)


def test_each_listener_names_what_is_advertised_for_it() -> None:
    """As brokers in containers have one for their neighbours and one for the host."""
    with ExitStack() as stack:
        ports = free_ports(2)  # of no one: no record is sent
        proxies = [stack.enter_context(FaultProxy(("127.0.0.1", port))) for port in ports]
        cluster = stack.enter_context(
            EmbeddedCluster(
                brokers=2,
                listeners="PLAINTEXT://:0,OUTER:PLAINTEXT://:0",
                advertised=[f"OUTER://{proxy.bootstrap}" for proxy in proxies],
            )
        )
        for name, expected in (
            ("PLAINTEXT", addresses_of(cluster, "PLAINTEXT")),
            ("OUTER", {proxy.bootstrap for proxy in proxies}),
        ):
            nodes = AdminClient({"bootstrap.servers": cluster.listeners[name]}).list_topics(timeout=TIMEOUT_S).brokers
            assert {f"{node.host}:{node.port}" for node in nodes.values()} == expected
