"""A fault hits a part of a request, and the rest of it works: seen in the log and by clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.broker.embedding.faults import close, delay, hold, move_leader, reply_with
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkaprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkaprod.protocol.schema import Request
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

NOT_LEADER, STORAGE, NOT_ATTEMPTED = 6, 56, 55


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"a": 3, "b": 2}) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared_broker
    shared_broker.faults.clear()


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        yield client


def exchange(client: RawClient, request: Request, version: int) -> Any:
    return client.call(request, RESPONSES[request.api], version)


def produce(version: int, acks: int = -1) -> ProduceRequest:
    assert version <= 12
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=each, records=make_batch([b"x"])) for each in range(count)],
            )
            for name, count in (("a", 3), ("b", 2))
        ],
    )


def ends(broker: EmbeddedBroker) -> dict[tuple[str, int], int]:
    rows = broker.command({"command": "overview"})["topics"]
    return {(name, row[0]): row[4] for name, internal, parts in rows if not internal for row in parts}


@pytest.mark.parametrize("version", [3, 12])
def test_a_part_of_a_produce_request_fails_and_the_others_are_in_the_log(
    broker: EmbeddedBroker, client: RawClient, version: int
) -> None:
    before = ends(broker)
    rule = broker.faults.on("PRODUCE", reply_with(STORAGE), topic="a", partition=[0, 2], times=1)
    answer = exchange(client, produce(version), version)
    codes = {(t.name, p.index): p.error_code for t in answer.responses for p in t.partition_responses}
    assert codes == {("a", 0): STORAGE, ("a", 1): 0, ("a", 2): STORAGE, ("b", 0): 0, ("b", 1): 0}
    assert len(answer.responses) == 2
    grown = {place: end - before[place] for place, end in ends(broker).items() if place[0] in "ab"}
    assert grown == {("a", 0): 0, ("a", 1): 1, ("a", 2): 0, ("b", 0): 1, ("b", 1): 1}
    assert (rule.matched, rule.fired, rule.left) == (1, 1, 0)
    fired = broker.faults.fired()[-1]
    assert (fired.api, fired.parts) == (ApiKey.PRODUCE, [("a", 0), ("a", 2)])


def test_all_parts_of_a_request_can_be_hit_by_several_rules(broker: EmbeddedBroker, client: RawClient) -> None:
    before = ends(broker)
    broker.faults.on("PRODUCE", reply_with(STORAGE), topic="a")
    broker.faults.on("PRODUCE", move_leader(), partition=[0, 1])
    answer = exchange(client, produce(12), 12)
    codes = [
        [p.error_code for p in sorted(t.partition_responses, key=lambda each: each.index)] for t in answer.responses
    ]
    assert sorted(codes) == [[NOT_LEADER, NOT_LEADER], [STORAGE] * 3]
    assert ends(broker) == before


def test_a_producer_sends_what_failed_in_one_partition_again(broker: EmbeddedBroker) -> None:
    broker.command({"command": "create", "topic": "again", "partitions": 2, "configs": {}})
    with broker.faults.on("PRODUCE", move_leader(), topic="again", partition=1, times=2) as rule:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("again", b"%d" % number, partition=number % 2)
        rule.wait(2)
    assert sorted(int(record.value or b"") for record in broker.records("again")) == list(range(10))
    other = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers})
    broker.faults.on("PRODUCE", reply_with("NOT_LEADER_OR_FOLLOWER"), topic="aga*", partition=0, times=1)
    for number in range(10, 20):
        other.produce("again", b"%d" % number, partition=number % 2)
    assert other.flush(20) == 0
    assert sorted(int(record.value or b"") for record in broker.records("again")) == list(range(20))


def test_without_acks_the_connection_is_closed_and_the_rest_is_written(broker: EmbeddedBroker) -> None:
    before = ends(broker)
    broker.faults.on("PRODUCE", reply_with(STORAGE), topic="a", times=1)
    with RawClient(broker.bootstrap_servers) as client:
        client.send(produce(12, acks=0), 12)
        assert client.is_closed_by_broker()
    assert {place for place, end in ends(broker).items() if end > before.get(place, 0)} == {("b", 0), ("b", 1)}


def test_what_is_applied_is_in_the_log_and_answered_with_the_error(broker: EmbeddedBroker, client: RawClient) -> None:
    before = ends(broker)
    with (
        broker.faults.on("PRODUCE", reply_with("REQUEST_TIMED_OUT", applied=True), topic="a", partition=[0, 1]),
        broker.faults.on("PRODUCE", reply_with(STORAGE), topic="b", partition=0),
    ):
        answer = exchange(client, produce(12), 12)
    codes = {(t.name, p.index): p.error_code for t in answer.responses for p in t.partition_responses}
    assert codes == {("a", 0): 7, ("a", 1): 7, ("a", 2): 0, ("b", 0): STORAGE, ("b", 1): 0}
    assert sum(len(t.partition_responses) for t in answer.responses) == 5
    grown = {place for place, end in ends(broker).items() if end > before.get(place, 0)}
    assert grown == {("a", 0), ("a", 1), ("a", 2), ("b", 1)}
    with broker.faults.on("PRODUCE", reply_with("REQUEST_TIMED_OUT", applied=True)):
        answer = exchange(client, produce(12), 12)
    assert {p.error_code for t in answer.responses for p in t.partition_responses} == {7}
    assert ends(broker)["a", 2] == before["a", 2] + 2


def test_commits_and_topics_are_applied_too(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.on("OFFSET_COMMIT", reply_with("REQUEST_TIMED_OUT", applied=True), topic="a", partition=1)
    broker.faults.on("CREATE_TOPICS", reply_with("REQUEST_TIMED_OUT", applied=True), topic="late")
    committed = [OffsetCommitRequestPartition(partition_index=each, committed_offset=9) for each in range(2)]
    body = OffsetCommitRequest(group_id="applied", topics=[OffsetCommitRequestTopic(name="a", partitions=committed)])
    answer = exchange(client, body, 8)
    assert {each.partition_index: each.error_code for each in answer.topics[0].partitions} == {0: 0, 1: 7}
    assert {place.partition: each.offset for place, each in broker.committed("applied").items()} == {0: 9, 1: 9}
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("late", "punctual")]
    made = exchange(client, CreateTopicsRequest(topics=new), 5)
    assert {each.name: each.error_code for each in made.topics} == {"late": 7, "punctual": 0}
    topics = {name for name, *_ in broker.command({"command": "overview"})["topics"]}
    assert {"late", "punctual"} <= topics


@pytest.mark.parametrize("ends_by", ["release", "clear"])
def test_what_is_held_waits_until_it_is_released(broker: EmbeddedBroker, ends_by: str) -> None:
    before = ends(broker)
    rule = broker.faults.on("PRODUCE", hold(), topic="a")
    with RawClient(broker.bootstrap_servers) as held, RawClient(broker.bootstrap_servers) as other:
        held.send(produce(12), 12)
        rule.wait()
        assert exchange(other, MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 9).topics
        assert ends(broker) == before
        if ends_by == "release":
            rule.release()
        else:
            broker.faults.clear()
        held.receive(RESPONSES[ApiKey.PRODUCE], 12)
        assert ends(broker)["a", 0] == before["a", 0] + 1
        exchange(other, produce(12), 12)  # the rule is gone


def test_a_broker_with_held_requests_stops() -> None:
    with EmbeddedBroker(topics={"a": 3, "b": 2}) as broker:
        rule = broker.faults.on("PRODUCE", hold())
        with RawClient(broker.bootstrap_servers) as client:
            client.send(produce(12), 12)
            rule.wait()
        broker.stop()
        broker.start()
        assert broker.records("a") == []


def test_a_part_of_a_fetch_fails_and_the_rest_is_answered_at_once(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.on("FETCH", reply_with(NOT_LEADER), topic="a", partition=1)
    wanted = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=100_000) for each in range(3)]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=60_000, min_bytes=10_000_000, topics=[FetchTopic(topic="a", partitions=wanted)]
    )
    answer = exchange(client, request, 11)
    codes = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
    assert codes == {0: 0, 1: NOT_LEADER, 2: 0}


def test_parts_of_other_requests_fail_and_the_rest_works(broker: EmbeddedBroker, client: RawClient) -> None:
    for api in ("LIST_OFFSETS", "METADATA", "OFFSET_COMMIT", "OFFSET_FETCH"):
        broker.faults.on(api, reply_with(STORAGE), topic="a", partition=1)
    offsets = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(3)]
    listed = exchange(
        client, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=offsets)]), 5
    )
    assert {each.partition_index: each.error_code for each in listed.topics[0].partitions} == {0: 0, 1: STORAGE, 2: 0}
    shown = exchange(client, MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 9)
    assert [(each.error_code, each.leader_id) for each in shown.topics[0].partitions] == [(0, 0), (STORAGE, -1), (0, 0)]
    committed = [OffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in range(3)]
    body = OffsetCommitRequest(group_id="parts", topics=[OffsetCommitRequestTopic(name="a", partitions=committed)])
    answer = exchange(client, body, 8)
    assert {each.partition_index: each.error_code for each in answer.topics[0].partitions} == {0: 0, 1: STORAGE, 2: 0}
    broker.faults.on("OFFSET_FETCH", reply_with(STORAGE), topic="a", partition=0)
    group = OffsetFetchRequestGroup(
        group_id="parts", topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1, 2])]
    )
    fetched = exchange(client, OffsetFetchRequest(groups=[group]), 8).groups[0].topics[0].partitions
    found = {each.partition_index: (each.error_code, each.committed_offset) for each in fetched}
    assert found == {0: (STORAGE, -1), 1: (STORAGE, -1), 2: (0, 7)}


def test_a_topic_that_is_hit_is_neither_shown_nor_created(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.on("METADATA", reply_with("TOPIC_AUTHORIZATION_FAILED"), topic="secret*")
    broker.faults.on("CREATE_TOPICS", reply_with("POLICY_VIOLATION"), topic="bad")
    names = [MetadataRequestTopic(name="secret-1"), MetadataRequestTopic(name="a")]
    shown = exchange(client, MetadataRequest(topics=names, allow_auto_topic_creation=True), 9)
    assert {each.name: each.error_code for each in shown.topics} == {"a": 0, "secret-1": 29}
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("bad", "good")]
    made = exchange(client, CreateTopicsRequest(topics=new), 5)
    assert {each.name: each.error_code for each in made.topics} == {"bad": 44, "good": 0}
    topics = {name for name, *_ in broker.command({"command": "overview"})["topics"]}
    assert ("good" in topics, "bad" in topics, "secret-1" in topics) == (True, False, False)


def test_nothing_is_added_to_a_transaction_if_one_partition_is_hit(broker: EmbeddedBroker, client: RawClient) -> None:
    broker.faults.on("ADD_PARTITIONS_TO_TXN", reply_with("TOPIC_AUTHORIZATION_FAILED"), topic="a", partition=1)
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0, 1])],
    )
    found = exchange(client, body, 3).results_by_topic_v3_and_below[0].results_by_partition
    assert {each.partition_index: each.partition_error_code for each in found} == {0: NOT_ATTEMPTED, 1: 29}


def test_only_the_group_or_client_that_is_named_is_hit(broker: EmbeddedBroker) -> None:
    broker.faults.on("OFFSET_COMMIT", reply_with("GROUP_AUTHORIZATION_FAILED"), group="audit")
    offsets = [TopicPartition("a", 0, 1)]
    for group, is_hit in (("audit", True), ("billing", False)):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
        if is_hit:
            with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
                consumer.commit(offsets=offsets, asynchronous=False)
        else:
            consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


def test_a_cluster_has_rules_for_all_brokers_or_one() -> None:
    with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        rule = cluster.faults.on("METADATA", delay(1), node=2)
        assert list(rule.number) == [2]
        leader = cluster.leader("t", 0)
        with cluster.faults.on("PRODUCE", move_leader(), topic="t", partition=0, times=1) as moved:
            with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                producer.send("t", b"1", partition=0).result(20)
            moved.wait()
        assert [(each.node, each.parts) for each in cluster.faults.fired() if each.api is ApiKey.PRODUCE] == [
            (leader.id, [("t", 0)])
        ]
        with pytest.raises(ConfigError, match="brokers that run are 1, 2"):
            cluster.faults.on("FETCH", close(), node=3)


@pytest.mark.parametrize(
    ("api", "options", "text"),
    [
        ("HEARTBEAT", {"topic": "a"}, "requests of HEARTBEAT carry client_id, group, node"),
        ("PRODUCE", {"group": "g"}, "carry client_id, node, partition, topic, transactional_id"),
        ("PRODUCE", {"partition": -1}, "partition"),
        ("PRODUCE", {"partition": "0"}, "partition"),
        ("PRODUCE", {"topic": []}, "selects nothing"),
        ("PRODUCE", {"topic": 5}, "topic"),
        ("PRODUCE", {"after": -1}, "after"),
    ],
)
def test_selectors_that_cannot_hit_are_refused(
    broker: EmbeddedBroker, api: str, options: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        broker.faults.on(api, close(), **options)  # type: ignore[arg-type]
    assert broker.command({"command": "rules"})["rules"] == []
