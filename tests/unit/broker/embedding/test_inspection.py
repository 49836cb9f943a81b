"""A test asks a broker, or a cluster, what clients have asked and committed, and changes it without a client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.broker.calls.request_log import OTHER_CLIENTS, RequestLog
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.inspection import RequestsLostError
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.structs import TopicPartition


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 3}, record_requests=True, options={"log.segment.bytes": 1 << 20}) as broker:
        yield broker


def test_what_a_producer_asked_is_seen(broker: EmbeddedBroker) -> None:
    mark = broker.mark()
    settings = {"bootstrap_servers": broker.bootstrap_servers, "client_id": "loader", "linger_ms": 200}
    with Producer(settings) as producer:
        producer.send_many("orders", [b"1", b"2", b"3"], partition=1).wait()
    produced = broker.wait_for_requests("PRODUCE", client_id="loader", since=mark)
    assert [(each.topics, each.records, each.node) for each in produced] == [({"orders": [1]}, 3, 0)]
    assert broker.requests("FETCH", since=mark) == []
    assert broker.request_count("PRODUCE", client_id="loader") == 1
    assert broker.request_count("PRODUCE", client_id="loader", since=broker.mark()) == 0
    assert {each.client_id for each in broker.requests(topic="orders", since=mark)} == {"loader"}
    with pytest.raises(
        AssertionError, match=r"0 of 2 requests FETCH came within 0 s; the last ones:\n(.*\n)*.*PRODUCE"
    ):
        broker.wait_for_requests("FETCH", 2, since=mark, timeout=0)


def test_what_a_group_has_committed_and_what_it_has_not_read_is_seen(broker: EmbeddedBroker) -> None:
    assert (broker.committed("billing"), broker.lag("billing"), broker.group("billing")) == ({}, {}, None)
    for number in range(5):
        broker.send("orders", f"{number}", partition=2)
    mark = broker.mark()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "client.id": "app"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(30) is not None
    group = broker.wait_for_group("billing")
    assert [(member.client_id, len(member.partitions)) for member in group.members] == [("app", 3)]
    consumer.commit(offsets=[Place("orders", 2, 3, metadata="m")], asynchronous=False)
    place = TopicPartition("orders", 2)
    committed = broker.committed("billing", "orders")
    assert (list(committed), committed[place].offset, broker.lag("billing")[place]) == ([place], 3, 2)
    assert len(broker.requests("OFFSET_COMMIT", group="billing", since=mark)) == 1
    consumer.close()
    broker.wait_for_requests("LEAVE_GROUP", group="billing", since=mark)
    assert broker.wait_for_group("billing", 0).state == "Empty"


def test_an_open_transaction_is_seen(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="pay") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"1", partition=0).result(10)
        found = broker.transaction("pay")
        assert found is not None
        assert (found.state, found.partitions) == ("Ongoing", [TopicPartition("orders", 0)])
        assert found.age_ms is not None
        producer.commit_transaction()
    assert broker.transaction("unknown") is None


def test_records_and_topics_are_made_and_deleted_without_a_client(broker: EmbeddedBroker) -> None:
    broker.create_topic("made", 2, configs={"cleanup.policy": "compact"})
    sent = [broker.send("made", value, "k", [("h", None)], timestamp=1_700_000_000_000) for value in ("1", None, "2")]
    assert broker.records("made") == sent
    assert broker.delete_records("made", {sent[0].partition: 1}) == {sent[0].partition: 1}
    assert broker.records("made") == sent[1:]
    broker.compact("made")
    assert broker.records("made") == sent[2:]
    with pytest.raises(EmbeddedBrokerError, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("made")
    with pytest.raises(EmbeddedBrokerError, match="nowhere-0 does not exist"):
        broker.send("nowhere", b"1")
    with pytest.raises(EmbeddedBrokerError, match="is not compacted"):
        broker.compact("orders")
    with pytest.raises(ConfigError, match="offsets"):
        broker.delete_records("made", 7)  # type: ignore[arg-type]


def test_retention_happens_when_a_test_wants_it(broker: EmbeddedBroker) -> None:
    broker.create_topic("aging", configs={"retention.ms": 60_000})
    broker.send("aging", "old")
    assert broker.apply_retention("aging") == {0: 0}
    assert broker.apply_retention("aging", now_ms=int(time.time() * 1000) + 3_600_000) == {0: 1}
    assert broker.records("aging") == []


def test_a_cluster_is_asked_as_a_whole() -> None:
    with EmbeddedCluster(brokers=2, topics={"t": 2}, record_requests=True) as cluster:
        mark = cluster.mark()
        assert sorted(mark) == [1, 2]
        for partition in (0, 1):
            cluster.send("t", "x", partition=partition)
        assert cluster.request_count("PRODUCE", since=mark) == 0
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"1", partition=0)
            producer.send("t", b"2", partition=1)
        seen = cluster.wait_for_requests("PRODUCE", 2, since=mark)
        assert {each.node for each in seen} == {cluster.leader("t", number).id for number in (0, 1)}
        assert len(cluster.records("t")) == 4
        cluster.delete_records("t", {0: -1, 1: -1})
        assert cluster.records("t") == []


def test_without_recording_the_error_says_how_to_get_it() -> None:
    with EmbeddedBroker() as broker, pytest.raises(EmbeddedBrokerError, match="record_requests=True"):
        broker.requests()


def test_the_log_of_requests_is_bounded_and_says_what_it_lost() -> None:
    log = RequestLog()
    for number in range(10_001):
        log.note(0, ApiKey.FETCH, 1, f"client-{number % 1_001}", "h", 1, [("t", each) for each in range(99)], [], [], 0)
    found, is_cut = log.since(0)
    assert (len(found), is_cut, len(found[0].topics["t"])) == (10_000, True, 64)
    assert log.since(1)[1] is False
    counts = {client: count for _, client, count in log.counts()}
    assert (len(counts), sum(counts.values()), counts[OTHER_CLIENTS]) == (1_001, 10_001, 9)


def test_requests_that_are_not_kept_any_more_are_an_error(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"requests": [], "is_cut": True, "newest": 20_000}
    monkeypatch.setattr(broker, "_ask_each", lambda _: {0: answer})
    with pytest.raises(RequestsLostError, match="10,000"):
        broker.requests(since={0: 1})
