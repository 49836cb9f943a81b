"""Transactions on Apache Kafka itself, by both rules and on an old release, behind a proxy that loses answers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkaprod import Producer
from kafkaprod.errors import CommitUnknownError, ProducerFencedError, TransactionAbortableError
from kafkaprod.protocol.api_keys import ApiKey
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.proxy import FaultProxy
from tests.kafka.proxy_actions import Cut, DropAndReset
from tests.kafka.reading import read_all
from tests.kafka.runtime import BROKER_VERSION, OLD_BROKER_VERSION, OLDEST_BROKER_VERSION
from tests.support.kafka.fixtures_kafka import ProxiedCluster, proxied_cluster

pytestmark = pytest.mark.external

TIMEOUT_S = 60
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
CLUSTERS = {
    "v2": {"version": BROKER_VERSION},
    "v1": {"version": BROKER_VERSION, "features": {"transaction.version": 1}},
    "old": {"version": OLD_BROKER_VERSION},
    "oldest": {"version": OLDEST_BROKER_VERSION},
}


@pytest.fixture(scope="module", params=CLUSTERS)
def rig(request: pytest.FixtureRequest) -> Iterator[ProxiedCluster]:
    yield from proxied_cluster(
        KafkaCluster(1, listeners=("PLAINTEXT", "PROXIED"), overrides=SOON, **CLUSTERS[request.param])  # type: ignore[arg-type]
    )


@pytest.fixture
def topic(rig: ProxiedCluster) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    rig.cluster.create_topic(name, 2)
    yield name
    rig.proxies[1].clear()


def make(rig: ProxiedCluster, transactional_id: str, **options: int) -> Producer:
    servers = rig.cluster.bootstrap("PROXIED")
    producer = Producer(options, bootstrap_servers=servers, transactional_id=transactional_id, linger_ms=0)
    producer.init_transactions(TIMEOUT_S)
    return producer


def read(rig: ProxiedCluster, topic: str) -> list[bytes]:
    """The values that a read_committed reader gets."""
    partitions = read_all(rig.cluster.bootstrap(), topic)
    return sorted(record.value or b"" for records in partitions.values() for record in records)


def committed(rig: ProxiedCluster, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": rig.cluster.bootstrap(), "group.id": group})
    (partition,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return int(partition.offset)


def stable_end(rig: ProxiedCluster, topic: str) -> int:
    """The last stable offsets of both partitions together."""
    options = {"group.id": "-", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": rig.cluster.bootstrap(), **options})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1] for number in range(2)]
    consumer.close()
    return sum(ends)


def proxy(rig: ProxiedCluster) -> FaultProxy:
    return rig.proxies[1]


def test_committed_records_and_offsets_are_seen_and_aborted_ones_are_not(rig: ProxiedCluster, topic: str) -> None:
    with make(rig, topic) as producer:
        for number in range(9):
            producer.begin_transaction()
            producer.send_many(topic, [b"%d" % number] * 20)
            producer.send_offsets_to_transaction({(topic, 0): number + 1}, topic, TIMEOUT_S)
            if number % 3 == 2:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
        with producer.transaction():
            pass
    assert read(rig, topic) == [b"%d" % number for number in (0, 1, 3, 4, 6, 7) for _ in range(20)]
    assert committed(rig, topic, topic) == 8


def test_offsets_of_a_consumer_that_left_are_refused(rig: ProxiedCluster, topic: str) -> None:
    options = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": rig.cluster.bootstrap(), **options})
    consumer.subscribe([topic])
    with make(rig, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"v", partition=0)
        while consumer.poll(1.0) is None:
            pass
        with producer.transaction():
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
            )
        stale = consumer.consumer_group_metadata()
        consumer.close()
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError):
            producer.send_offsets_to_transaction({(topic, 0): 5}, stale, TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)
    assert committed(rig, topic, topic) == 1


def test_second_producer_fences_the_first(rig: ProxiedCluster, topic: str) -> None:
    first = make(rig, topic)
    first.begin_transaction()
    first.send(topic, b"lost").result(TIMEOUT_S)
    with make(rig, topic) as second:
        with pytest.raises((ProducerFencedError, TransactionAbortableError)):
            first.commit_transaction(TIMEOUT_S)
        with pytest.raises(ProducerFencedError):
            first.abort_transaction(TIMEOUT_S)
        with second.transaction():
            second.send(topic, b"kept")
    first.close(TIMEOUT_S)
    assert read(rig, topic) == [b"kept"]


@pytest.mark.parametrize("is_answer_lost", [True, False], ids=["answer", "request"])
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("api", [ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
def test_lost_request_or_answer_is_repeated(
    rig: ProxiedCluster, topic: str, api: ApiKey, is_commit: bool, is_answer_lost: bool
) -> None:
    with make(rig, topic) as producer:
        if is_answer_lost:
            proxy(rig).on_reply(api, DropAndReset(), times=1)
        else:
            proxy(rig).on_request(api, Cut(3), times=1)
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.send_offsets_to_transaction({(topic, 0): 7}, topic, TIMEOUT_S)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(TIMEOUT_S)
        with producer.transaction():
            producer.send(topic, b"w")
    assert read(rig, topic) == ([b"v", b"w"] if is_commit else [b"w"])
    assert (committed(rig, topic, topic) == 7) is is_commit


def test_transaction_that_takes_too_long_is_not_committed(rig: ProxiedCluster, topic: str) -> None:
    producer = make(rig, topic, transaction_timeout_ms=500)
    producer.begin_transaction()
    producer.send(topic, b"late").result(TIMEOUT_S)
    wait_until(lambda: stable_end(rig, topic) == 2, TIMEOUT_S, "the coordinator's abort")
    with pytest.raises((ProducerFencedError, TransactionAbortableError)) as caught:
        producer.commit_transaction(TIMEOUT_S)
    assert caught.value.outcome == "not committed"
    if isinstance(caught.value, TransactionAbortableError):
        producer.abort_transaction(TIMEOUT_S)
        with producer.transaction():
            producer.send(topic, b"next")
        assert read(rig, topic) == [b"next"]
    producer.close(TIMEOUT_S)


def test_commit_during_a_restart_of_the_coordinator_is_resumed(rig: ProxiedCluster, topic: str) -> None:
    with make(rig, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(TIMEOUT_S)
        rig.cluster.stop(1)
        with pytest.raises(CommitUnknownError):
            producer.commit_transaction(0.5)
        starting = threading.Thread(target=lambda: rig.cluster.start_node(1))
        starting.start()
        producer.commit_transaction(TIMEOUT_S)
        starting.join()
        rig.cluster.wait_until_ready()
        with producer.transaction():
            producer.send(topic, b"w")
    assert read(rig, topic) == [b"v", b"w"]
