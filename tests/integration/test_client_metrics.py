"""Metrics that a producer pushes to brokers (KIP-714)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import confluent_kafka
import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.support.broker.subscriptions import subscribe
from tests.support.broker.telemetry import pushes_until
from tests.support.otlp import read_metrics

SENT = "org.apache.kafka.producer.record.send.total"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1}, client_metrics=True) as broker:
        yield broker


def test_metrics_are_pushed_at_the_interval_and_at_the_end(broker: EmbeddedBroker) -> None:
    subscribe(broker, interval_ms="100", metrics="*")
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, client_id="till", client_rack="r1")
    for number in range(3):
        producer.send("orders", b"v%d" % number).get(10)
    pushes = pushes_until(broker, lambda pushes: len(pushes) >= 3)
    instance_id = producer.metrics()["app-info"]["client-instance-id"]
    producer.send("orders", b"last").get(10)
    producer.close()
    pushes += broker.take_client_metrics()
    assert [push.is_last for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert {(push.client_id, str(push.instance_id)) for push in pushes} == {("till", instance_id)}
    read = [read_metrics(push.metrics) for push in pushes]
    assert read[0][""] == {"client_rack": "r1", "scope": ("kafkaprod", producer.metrics()["app-info"]["version"])}
    # Differences: together they are what was sent.
    assert sum(each[SENT]["points"][""] for each in read) == 4
    assert all(each[SENT]["is_total"] and each[SENT]["temporality"] == 1 for each in read)
    assert [each[SENT]["times"][0] for each in read[1:]] == [each[SENT]["times"][1] for each in read[:-1]]
    assert read[-1]["org.apache.kafka.producer.topic.byte.total"]["points"].keys() == {"topic=orders"}
    required = {
        "connection.creation.rate",
        "connection.creation.total",
        "node.request.latency.avg",
        "node.request.latency.max",
        "produce.throttle.time.avg",
        "produce.throttle.time.max",
        "record.queue.time.avg",
        "record.queue.time.max",
    }  # KIP-714, "Producer: standard metrics"
    assert {f"org.apache.kafka.producer.{name}" for name in required} <= read[-1].keys()
    assert "node_id=node-0" in read[-1]["org.apache.kafka.producer.node.request.latency.max"]["points"]


def test_only_requested_metrics_are_pushed(broker: EmbeddedBroker) -> None:
    subscribe(
        broker, interval_ms="100", metrics="org.apache.kafka.producer.record.queue.,org.apache.kafka.producer.node"
    )
    subscribe(broker, "others", interval_ms="100", metrics="*", match="client_id=someone.*")
    with Producer(bootstrap_servers=broker.bootstrap_servers, client_id="till") as producer:
        producer.send("orders", b"v").get(10)
        (push, *_) = pushes_until(broker, bool)
    names = read_metrics(push.metrics).keys() - {""}
    assert names >= {"org.apache.kafka.producer.record.queue.time.max"}
    assert all(
        name.startswith(("org.apache.kafka.producer.record.queue.", "org.apache.kafka.producer.node")) for name in names
    )


def test_a_changed_subscription_is_followed(broker: EmbeddedBroker) -> None:
    subscribe(broker, interval_ms="100", metrics=SENT)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"v").get(10)
        pushes_until(broker, bool)
        subscribe(broker, interval_ms="100", metrics="org.apache.kafka.producer.request.total")
        pushes_until(
            broker,
            lambda pushes: any("org.apache.kafka.producer.request.total" in read_metrics(p.metrics) for p in pushes),
        )


def test_without_a_subscription_or_with_the_option_off_nothing_is_pushed(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"v").get(10)
    subscribe(broker, interval_ms="100", metrics="*")
    with Producer(bootstrap_servers=broker.bootstrap_servers, enable_metrics_push=False) as producer:
        producer.send("orders", b"v").get(10)
        assert "client-instance-id" not in producer.metrics()["app-info"]
    assert broker.take_client_metrics() == []


def test_nothing_is_asked_of_a_broker_that_takes_no_metrics() -> None:
    with (
        EmbeddedBroker(topics={"orders": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("orders", b"v").get(10)
        assert broker.take_client_metrics() == []
        assert "client-instance-id" not in producer.metrics()["app-info"]


@pytest.mark.parametrize(
    "faults",
    [
        {ApiKey.PUSH_TELEMETRY: ErrorCode.UNKNOWN_SUBSCRIPTION_ID},
        {ApiKey.PUSH_TELEMETRY: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE},
        {ApiKey.PUSH_TELEMETRY: ErrorCode.TELEMETRY_TOO_LARGE},
        {ApiKey.PUSH_TELEMETRY: ErrorCode.THROTTLING_QUOTA_EXCEEDED},
    ],
)
def test_pushes_resume_after_an_error(broker: EmbeddedBroker, faults: Mapping[ApiKey, ErrorCode]) -> None:
    subscribe(broker, interval_ms="100", metrics="*")
    for api, code in faults.items():
        broker.faults.on(api, reply_with(code), times=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"v").get(10)
        pushes = pushes_until(broker, bool)
    assert broker.faults.fired_count(ApiKey.PUSH_TELEMETRY) == 1
    assert read_metrics(pushes[0].metrics)[SENT]["points"][""] == 1


def test_pushes_end_after_a_final_error_and_sending_goes_on(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(broker, interval_ms="100", metrics="*")
    broker.faults.on(ApiKey.PUSH_TELEMETRY, reply_with(ErrorCode.INVALID_REQUEST), times=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"v").get(10)
        end = time.monotonic() + 20
        while "no metrics are pushed" not in caplog.text:
            assert time.monotonic() < end
            time.sleep(0.02)
        producer.send("orders", b"v").get(10)
    assert broker.take_client_metrics() == []


def test_pushes_survive_a_restart_of_the_broker(broker: EmbeddedBroker) -> None:
    subscribe(broker, interval_ms="100", metrics="*")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"v").get(10)
        pushes_until(broker, bool)
        broker.stop()
        broker.start()
        producer.send("orders", b"v").get(10)
        pushes_until(broker, bool)


def test_a_transactional_producer_is_named(broker: EmbeddedBroker) -> None:
    subscribe(broker, interval_ms="100", metrics="*")
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="copy") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"v")
        producer.commit_transaction()
        (push, *_) = pushes_until(broker, bool)
    assert read_metrics(push.metrics)[""]["transactional_id"] == "copy"


def test_librdkafka_pushes_to_the_embedded_broker(broker: EmbeddedBroker) -> None:
    subscribe(broker, interval_ms="100", metrics="*")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "other"})
    producer.produce("orders", b"v")
    assert producer.flush(10) == 0
    pushes = pushes_until(broker, lambda pushes: len(pushes) >= 2)
    del producer
    pushes += pushes_until(broker, bool)
    assert {push.client_id for push in pushes} == {"other"}
    assert pushes[-1].is_last
    for push in pushes:
        read = read_metrics(push.metrics)
        assert read["org.apache.kafka.producer.record.queue.time.max"]["points"].keys() == {""}
        assert len(read["org.apache.kafka.producer.node.request.latency.max"]["points"]) == 1
