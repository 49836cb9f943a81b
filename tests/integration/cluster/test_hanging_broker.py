"""A broker hangs, with its connections open: records without a key go to the others, and those with one find memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkaprod import Column, DeliveryFuture, Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.errors import NodeBufferFullError
from kafkaprod.results.block import CLIENT_ERROR

PARTITIONS = 6
PATIENCE_S = 10.0  # many times partitioner_availability_timeout_ms, and half of request_timeout_ms


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, session_timeout_ms=60_000) as running:  # a broker that hangs leads on
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
            sent_to_sick = send_until_slow(producer, topic, sick.id)
            later = [producer.send(topic, b"later").result(PATIENCE_S).partition for _ in range(50)]
            led_by_sick = {number for number in range(PARTITIONS) if cluster.leader(topic, number).id == sick.id}
            assert not led_by_sick.intersection(later)
        finally:
            sick.resume()
        for future in sent_to_sick:  # they waited, and each has its one outcome
            assert future.result(PATIENCE_S).topic == topic


def test_one_thread_sends_to_healthy_brokers_with_isolate(cluster: EmbeddedCluster) -> None:
    topic = "isolated"
    cluster.create_topic(topic, PARTITIONS, replication_factor=1)
    sick = cluster.leader(topic, 0)
    healthy = [number for number in range(PARTITIONS) if cluster.leader(topic, number).id != sick.id]
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, buffer_full_policy="isolate", buffer_memory=1 << 20
    ) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, b"first", partition=number).result(PATIENCE_S)
        sick.pause()
        try:
            waiting, refusal = fill_share(producer, topic, healthy)
            assert (refusal.context["node"], refusal.limit_bytes) == (sick.id, (1 << 20) // 3)
            assert f"node {sick.id} is sick" in str(refusal)
            health = producer.node_states()[sick.id]
            assert health.state == "sick"
            assert health.silent_ms > health.usual_ms
            assert producer.metrics()[f"producer-node-metrics.node-{sick.id}"]["node-state"] == 2
            for _ in range(100):
                for number in healthy:
                    waiting.append(producer.send(topic, b"x" * 1000, partition=number))
            for future in waiting[-400:]:
                assert future.result(PATIENCE_S).partition in healthy
        finally:
            sick.resume()
        for future in waiting:  # those of the sick broker, too
            assert future.result(PATIENCE_S).topic == topic


def test_blocks_leave_the_rows_of_a_sick_broker_out_with_isolate(cluster: EmbeddedCluster) -> None:
    topic = "isolated-blocks"
    cluster.create_topic(topic, PARTITIONS, replication_factor=1)
    sick = cluster.leader(topic, 0)
    healthy = [number for number in range(PARTITIONS) if cluster.leader(topic, number).id != sick.id]
    partitions = list(range(PARTITIONS)) * 50
    refused = [row for row, number in enumerate(partitions) if number not in healthy]
    values = [b"x" * 1000] * len(partitions)
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, buffer_full_policy="isolate", buffer_memory=1 << 20
    ) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, b"first", partition=number).result(PATIENCE_S)
        sick.pause()
        try:
            fill_share(producer, topic, healthy)
            calls: list[Callable[[], Any]] = [
                lambda: producer.send_many(topic, values, partitions=partitions),
                lambda: producer.send_columns(topic, Column.from_list(values, "values"), partitions=partitions),
                lambda: producer.send_table(topic, pa.table({"value": values, "to": partitions}), partition="to"),
            ]
            for call in calls:
                with pytest.raises(NodeBufferFullError, match=f"node {sick.id} is sick") as error:
                    call()
                result = error.value.result
                codes = result.error_codes
                assert list(np.flatnonzero(codes == CLIENT_ERROR)) == refused
                end_s = time.monotonic() + PATIENCE_S
                while np.any(result.error_codes[codes != CLIENT_ERROR]):
                    assert time.monotonic() < end_s
                    time.sleep(0.01)
                assert result.failed_count == len(refused)
        finally:
            sick.resume()


def fill_share(producer: Producer, topic: str, healthy: list[int]) -> tuple[list[DeliveryFuture], NodeBufferFullError]:
    """Send to partition 0, whose broker hangs, and to others until a record is refused; return all, and the error."""
    sent: list[DeliveryFuture] = []
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        for number in healthy:
            sent.append(producer.send(topic, b"x" * 100, partition=number))
        try:
            sent.append(producer.send(topic, b"x" * 2000, partition=0))
        except NodeBufferFullError as error:
            return sent, error
    raise AssertionError(f"{len(sent)} records were taken in {PATIENCE_S} s")


def send_until_slow(producer: Producer, topic: str, node_id: int) -> list[DeliveryFuture]:
    """Send records one by one until a node is known to be slow; return those that were not acknowledged in time."""
    waiting: list[DeliveryFuture] = []
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        future = producer.send(topic, b"x" * 100)
        try:
            future.result(0.005)
        except TimeoutError:
            waiting.append(future)
        if producer.node_states()[node_id].state != "ok":
            return waiting
    raise AssertionError(f"node {node_id} was ok for {PATIENCE_S} s")
