"""A broker hangs, with its connections open: with default options records without a key go to the others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafkaprod import DeliveryFuture, Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster

PARTITIONS = 6
PATIENCE_S = 10.0  # many times partitioner_availability_timeout_ms, and half of request_timeout_ms


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_records_without_a_key_leave_the_partition_of_a_broker_that_hangs(
    cluster: EmbeddedCluster, is_idempotent: bool
) -> None:
    topic = f"idempotent-{is_idempotent}"
    cluster.create_topic(topic, PARTITIONS, replication_factor=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=is_idempotent) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        current = producer.send(topic, b"where?").result(PATIENCE_S).partition
        sick = cluster.leader(topic, current)
        sick.pause()
        try:
            sent_to_sick = send_until_acknowledged(producer, topic)
            later = [producer.send(topic, b"later").result(PATIENCE_S).partition for _ in range(50)]
            led_by_sick = {number for number in range(PARTITIONS) if cluster.leader(topic, number).id == sick.id}
            assert not led_by_sick.intersection(later)
        finally:
            sick.resume()
        for future in sent_to_sick:  # they waited, and each has its one outcome
            assert future.result(PATIENCE_S).topic == topic


def send_until_acknowledged(producer: Producer, topic: str) -> list[DeliveryFuture]:
    """Send one record after the other until one is acknowledged; return those that were not in time."""
    waiting: list[DeliveryFuture] = []
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        future = producer.send(topic, b"x" * 100)
        try:
            future.result(0.005)
        except TimeoutError:
            waiting.append(future)
        else:
            return waiting
    raise AssertionError(f"none of {len(waiting)} records was acknowledged in {PATIENCE_S} s")
