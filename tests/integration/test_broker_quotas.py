"""Quotas of a running broker: the answer comes at once with a time, until which the connection is not read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.quotas import set_quota
from tests.support.clock import Stopwatch
from tests.support.net.raw_client import RawClient

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={TOPIC: 1}) as running:
        yield running


def produce_request(size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(bytearray(make_batch([b"x" * size]))))
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])


def test_a_connection_above_the_quota_is_answered_and_then_not_read(broker: EmbeddedBroker) -> None:
    """Others of the same client are read, and share the rate."""
    set_quota(broker.bootstrap_servers, "producer_byte_rate", 10_000.0)
    with RawClient(broker.bootstrap_servers) as client, RawClient(broker.bootstrap_servers) as other:
        waited = Stopwatch()
        first = client.call(produce_request(103_000), ProduceResponse, 9)
        assert 300 <= first.throttle_time_ms <= 340
        other.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert waited.ms >= first.throttle_time_ms
        assert other.call(produce_request(50_000), ProduceResponse, 9).throttle_time_ms > 0
        set_quota(broker.bootstrap_servers, "producer_byte_rate", 0.0)
        assert client.call(produce_request(10_000), ProduceResponse, 9).throttle_time_ms == 0


def test_a_connection_without_answers_waits_as_well(broker: EmbeddedBroker) -> None:
    set_quota(broker.bootstrap_servers, "producer_byte_rate", 10_000.0)
    with RawClient(broker.bootstrap_servers) as client:
        waited = Stopwatch()
        client.send(produce_request(102_500, acks=0), 9)
        client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert waited.ms >= 200


def test_a_producer_counts_what_it_waits_for_and_loses_nothing(broker: EmbeddedBroker) -> None:
    set_quota(broker.bootstrap_servers, "producer_byte_rate", 20_000.0, "slow")
    with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="slow", batch_size=16_384) as producer:
        for _ in range(21):
            producer.send(TOPIC, b"x" * 9_990)
        producer.flush(30)
        metrics = producer.metrics()
    assert metrics["producer-metrics"]["produce-throttle-time-max"] > 0
    assert len(broker.records(TOPIC, at_least=21)) == 21


@pytest.mark.parametrize("has_login", [False, True])
def test_who_has_not_logged_in_uses_up_no_quota(has_login: bool) -> None:
    listeners = "PLAINTEXT://:0,SASL_PLAINTEXT://:0"
    with EmbeddedBroker(topics={TOPIC: 1}, listeners=listeners, sasl_users={"ada": "lovelace"}) as broker:
        plain = broker.listeners["PLAINTEXT"]
        set_quota(plain, "request_percentage", 0.1)  # ten milliseconds in ten seconds
        for _ in range(400):
            with RawClient(broker.listeners["SASL_PLAINTEXT"] if has_login else plain) as stranger:
                stranger.call(ApiVersionsRequest(), ApiVersionsResponse, 2)
        with RawClient(plain) as client:
            throttle_ms = client.call(MetadataRequest(topics=[]), MetadataResponse, 9).throttle_time_ms
        assert (throttle_ms > 0) is not has_login
