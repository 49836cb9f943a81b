"""Each scripted fault as a client sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as ConfluentProducer

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import (
    close,
    close_after_handling,
    delay,
    drop_reply,
    half_frame,
    move_leader,
    reply_with,
    throttle,
)
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.fixtures_log import make_batch
from tests.support.clock import Stopwatch
from tests.support.net.raw_client import RawClient


@pytest.fixture
def broker(embedded_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield embedded_broker
    embedded_broker.faults.clear()


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(client: RawClient, topic_name: str) -> str:
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic_name)]), MetadataResponse, 4)
    return topic_name


def produce_request(topic: str) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=make_batch())]
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def produce(client: RawClient, topic: str) -> PartitionProduceResponse:
    answer = client.call(produce_request(topic), ProduceResponse, 9)
    return answer.responses[0].partition_responses[0]


def test_reply_with_an_error_does_not_handle_the_request(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.NOT_ENOUGH_REPLICAS), times=2)
    answers = [produce(client, topic) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [19, 19, 0]
    assert answers[2].base_offset == 0


def test_moved_leader_shows_in_the_metadata(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    broker.faults.on(ApiKey.PRODUCE, move_leader(), times=1)
    assert produce(client, topic).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, 7)
    epochs = {entry.partition_index: entry.leader_epoch for entry in answer.topics[0].partitions}
    assert epochs == {0: 1, 1: 0, 2: 0}
    assert produce(client, topic).error_code == 0


@pytest.mark.parametrize("version", [10, 13])
def test_refused_produce_names_the_moved_leader(
    broker: EmbeddedBroker, client: RawClient, topic: str, version: int
) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    request = produce_request(topic)
    request.topic_data[0].topic_id = client.call(asked, MetadataResponse, 12).topics[0].topic_id
    broker.faults.on(ApiKey.PRODUCE, move_leader(), times=1)
    answer = client.call(request, ProduceResponse, version)
    outcome = answer.responses[0].partition_responses[0]
    leader = (outcome.current_leader.leader_id, outcome.current_leader.leader_epoch)
    assert (outcome.error_code, leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (0, 1))
    assert [f"{node.host}:{node.port}" for node in answer.node_endpoints] == [broker.bootstrap_servers]
    answer = client.call(request, ProduceResponse, version)
    assert (answer.responses[0].partition_responses[0].error_code, answer.node_endpoints) == (0, [])


def test_closed_connection_has_written_nothing(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    broker.faults.on(ApiKey.PRODUCE, close(), times=1)
    client.send(produce_request(topic), 9)
    assert client.is_closed_by_broker()
    with RawClient(broker.bootstrap_servers) as other:
        assert produce(other, topic).base_offset == 0


@pytest.mark.parametrize("fault", [close_after_handling(), half_frame()])
def test_connection_closed_after_handling_has_written(broker: EmbeddedBroker, topic: str, fault: object) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        broker.faults.on(ApiKey.PRODUCE, fault, times=1)  # type: ignore[arg-type]
        client.send(produce_request(topic), 9)
        with pytest.raises(ConnectionError, match="closed by the broker"):
            client.receive_frame()
    with RawClient(broker.bootstrap_servers) as other:
        assert produce(other, topic).base_offset == 1


def test_half_a_frame_is_half_of_the_answer(broker: EmbeddedBroker, client: RawClient) -> None:
    whole = len(client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).encode(0)) + 8
    broker.faults.on(ApiKey.API_VERSIONS, half_frame(), times=1)
    client.send(ApiVersionsRequest(), 0)
    with pytest.raises(ConnectionError, match=f"after {whole // 2 - 4} of {whole - 4} bytes"):
        client.receive_frame()


def test_dropped_reply_leaves_the_connection_silent(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.bootstrap_servers, patience_s=0.3) as client:
        broker.faults.on(ApiKey.PRODUCE, drop_reply(), times=1)
        client.send(produce_request(topic), 9)
        with pytest.raises(TimeoutError):
            client.receive_frame()
    with RawClient(broker.bootstrap_servers) as other:
        assert produce(other, topic).base_offset == 1


def test_delayed_reply_holds_up_its_connection_only(broker: EmbeddedBroker, client: RawClient, topic: str) -> None:
    broker.faults.on(ApiKey.PRODUCE, delay(300), times=1)
    waited = Stopwatch()
    client.send(produce_request(topic), 9)
    with RawClient(broker.bootstrap_servers) as other:
        assert produce(other, topic).base_offset == 1
    assert client.receive(ProduceResponse, 9)[1].responses[0].partition_responses[0].base_offset == 0
    assert waited.ms >= 300


def test_throttled_connection_is_answered_at_once_and_then_not_read(
    broker: EmbeddedBroker, client: RawClient, topic: str
) -> None:
    broker.faults.on(ApiKey.PRODUCE, throttle(300), times=1)
    waited = Stopwatch()
    answer = client.call(produce_request(topic), ProduceResponse, 9)
    assert answer.throttle_time_ms == 300
    assert produce(client, topic).base_offset == 1
    assert waited.ms >= 300


def test_real_producer_gets_every_record_through_a_bad_hour(broker: EmbeddedBroker, topic: str) -> None:
    before = broker.faults.fired_count(ApiKey.PRODUCE)
    for seed, fault in enumerate((close(), close_after_handling(), half_frame(), move_leader(), delay(20))):
        broker.faults.on(ApiKey.PRODUCE, fault, rate=0.1, seed=seed)
    producer = ConfluentProducer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 10,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    offsets: list[int] = []
    for value in range(500):
        producer.produce(
            topic, b"%d" % value, partition=0, on_delivery=lambda _, message: offsets.append(message.offset() or 0)
        )
        if value % 10 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert sorted(offsets) == list(range(500))
    assert broker.faults.fired_count(ApiKey.PRODUCE) > before
