"""Proxies before embedded brokers: clients get the proxies' addresses, and all that they send passes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka.admin import AdminClient

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import KafkaError
from tests.kafka.ports import free_ports
from tests.kafka.proxy import FaultProxy

TIMEOUT_S = 30


@pytest.fixture(params=["alone", "cluster"])
def proxies(request: pytest.FixtureRequest) -> Iterator[list[FaultProxy]]:
    """A proxy for each broker, whose address is the one that the broker names."""
    count = 1 if request.param == "alone" else 2
    ports = free_ports(count)
    with ExitStack() as stack:
        found = [stack.enter_context(FaultProxy(("127.0.0.1", port))) for port in ports]
        if request.param == "alone":
            broker = EmbeddedBroker(port=ports[0], advertised=found[0].bootstrap, topics={"t": 2})
            assert stack.enter_context(broker).bootstrap_servers == f"127.0.0.1:{ports[0]}", "the broker's own"
        else:
            names = [proxy.bootstrap for proxy in found]
            stack.enter_context(EmbeddedCluster(brokers=count, ports=ports, advertised=names, topics={"t": 2}))
        yield found


def test_clients_get_the_proxies_addresses_and_use_no_others(proxies: list[FaultProxy]) -> None:
    addresses = {proxy.bootstrap for proxy in proxies}
    nodes = AdminClient({"bootstrap.servers": proxies[0].bootstrap}).list_topics(timeout=TIMEOUT_S).brokers
    assert {f"{node.host}:{node.port}" for node in nodes.values()} == addresses
    with Producer(
        bootstrap_servers=proxies[0].bootstrap, delivery_timeout_ms=3_000, request_timeout_ms=1_000
    ) as producer:
        for partition in (0, 1):
            producer.send("t", b"through", partition=partition).result(TIMEOUT_S)
        options = {"bootstrap.servers": proxies[0].bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = ConfluentConsumer(options)
        consumer.subscribe(["t"])
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [message.value() for message in consumer.consume(2, TIMEOUT_S)]
        consumer.close()
        assert values == [b"through"] * 2
        for proxy in proxies:
            proxy.refuse()
            proxy.cut_all()
        with pytest.raises(KafkaError):
            producer.send("t", b"cut").result(TIMEOUT_S)


def test_listeners_of_one_protocol_name_their_own_addresses() -> None:
    """As a broker in a container has one for its neighbours and one for the host; both outlive a restart."""
    inner, outer = free_ports(2)
    with (
        FaultProxy(("127.0.0.1", outer)) as proxy,
        EmbeddedBroker(
            listeners=f"PLAINTEXT://:{inner},OUTER:PLAINTEXT://:{outer}",
            advertised=f"OUTER://{proxy.bootstrap}",
            topics={"t": 1},
        ) as broker,
    ):
        for _ in range(2):
            assert broker.listeners == {"PLAINTEXT": f"127.0.0.1:{inner}", "OUTER": f"127.0.0.1:{outer}"}
            for bootstrap, advertised in ((f"127.0.0.1:{inner}",) * 2, (proxy.bootstrap,) * 2):
                nodes = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).brokers
                assert {f"{node.host}:{node.port}" for node in nodes.values()} == {advertised}
            broker.stop()
            broker.start()
