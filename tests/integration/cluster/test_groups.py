"""Groups and their committed offsets survive the broker that coordinates them."""

from __future__ import annotations

import contextlib
import time

import pytest
from confluent_kafka import Consumer, KafkaException

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.support.cluster.group_members import MEMBERS, PATIENCE_S

RECORDS = 300


def test_committed_offsets_survive_the_coordinator() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 1}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send_many("orders", [b"%d" % number for number in range(RECORDS)]).wait()
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe(["orders"])
        read: list[int] = []
        killed = 0
        deadline = time.monotonic() + 60
        while len(read) < RECORDS:
            assert time.monotonic() < deadline, f"read {len(read)}"
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            number = int(message.value() or b"")
            if number < len(read):
                continue  # read before, and not committed: the member joined again
            assert number == len(read)
            try:
                consumer.commit(message=message, asynchronous=False)
            except KafkaException:
                continue  # the coordinator moves: the record comes again
            read.append(number)
            if len(read) in (100, 200):
                coordinator = cluster.leader("__consumer_offsets", 0)
                coordinator.kill()
                cluster.wait_for(lambda view: view.leader("__consumer_offsets", 0) not in (None, coordinator.id))  # noqa: B023
                coordinator.start()
                cluster.wait_until_in_sync()
                killed += 1
        assert killed == 2
        assert read == list(range(RECORDS))
        consumer.close()


@pytest.mark.parametrize("client", MEMBERS)
@pytest.mark.parametrize("way", ["kill", "stop", "move"])
def test_consumers_stay_in_their_group_when_its_coordinator_changes(client: str, way: str) -> None:
    """They go on with their partitions: no member joins again."""
    with (
        EmbeddedCluster(brokers=3, topics={"orders": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer,
        contextlib.closing(MEMBERS[client](cluster.bootstrap_servers, "billing", "orders")) as member,
    ):
        producer.send("orders", b"0").result(PATIENCE_S)
        assert member.read(1) == [b"0"]
        joined = member.assigned_count  # kafka-python joins before it knows the topic, and again
        coordinator = cluster.coordinator_of("billing")
        if way == "move":
            successor = next(broker for broker in cluster.brokers if broker is not coordinator)
            cluster.move_leader("__consumer_offsets", 0, to=successor.id)
        else:
            getattr(coordinator, way)()
        cluster.wait_for(lambda view: view.leader("__consumer_offsets", 0) not in (None, coordinator.id))
        for number in (b"1", b"2"):
            producer.send("orders", number).result(PATIENCE_S)
            assert member.read(1) == [number]
        assert (member.assigned_count, member.revoked_count) == (joined, 0)
