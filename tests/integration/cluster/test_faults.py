"""Three brokers, and what breaks in tests of users: kills, pauses, cuts, restarts. Nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError
from kafkaprod.errors import KafkaError
from tests.support.cluster.load import Load
from tests.support.cluster.reading import read_with_confluent, read_with_kafka_python

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, session_timeout_ms=1_000, replica_lag_ms=500) as running:
        yield running


@pytest.fixture
def load(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Load]:
    """Load on a topic of the test's own; at its end all clients must read what was acknowledged."""
    topic = request.node.name.replace("[", "-").replace("]", "")[:200]
    cluster.create_topic(topic, PARTITIONS)
    running = Load(cluster.bootstrap_servers, topic, PARTITIONS)
    with running:
        running.wait_for_more(50)
        yield running
        cluster.heal()
        cluster.wait_until_in_sync()
        running.wait_for_more(50)
    assert running.failed == []
    read = read_with_confluent(cluster.bootstrap_servers, topic, PARTITIONS)
    assert read == running.in_order
    assert read_with_kafka_python(cluster.bootstrap_servers, topic, PARTITIONS) == read


def topic_of(load: Load) -> str:
    return load.topic


def test_every_broker_is_killed_in_turn(cluster: EmbeddedCluster, load: Load) -> None:
    for broker in cluster.brokers:
        broker.kill()
        cluster.wait_for(lambda view: broker.id not in view.active_brokers)  # noqa: B023
        load.wait_for_more(30)
        broker.start()
        cluster.wait_until_in_sync()


def test_rolling_restart_is_not_noticed(cluster: EmbeddedCluster, load: Load) -> None:
    cluster.roll()
    assert load.failed == []


def test_a_paused_leader_is_replaced_and_acknowledges_nothing_more(cluster: EmbeddedCluster, load: Load) -> None:
    leader = cluster.leader(topic_of(load), 0)
    leader.pause()
    cluster.wait_for(lambda view: view.leader(topic_of(load), 0) not in (None, leader.id))
    load.wait_for_more(30)
    leader.resume()
    cluster.wait_until_in_sync()


def test_a_leader_cut_off_from_the_others_is_a_zombie(cluster: EmbeddedCluster, load: Load) -> None:
    leader = cluster.leader(topic_of(load), 0)
    cluster.isolate(leader.id)
    cluster.wait_for(lambda view: view.leader(topic_of(load), 0) not in (None, leader.id))
    load.wait_for_more(30, timeout_s=60)  # clients may get old metadata from the zombie several times


@pytest.mark.parametrize("one_way", [False, True])
def test_a_follower_that_cannot_fetch_leaves_the_isr(cluster: EmbeddedCluster, load: Load, one_way: bool) -> None:
    leader, follower = cluster.leader(topic_of(load), 0), cluster.followers(topic_of(load), 0)[0]
    with cluster.cut(follower.id, leader.id, one_way=one_way):
        cluster.wait_for(lambda view: follower.id not in view.isr(topic_of(load), 0))
        load.wait_for_more(30)
    cluster.wait_for(lambda view: follower.id in view.isr(topic_of(load), 0))


def test_brokers_serve_without_a_controller(cluster: EmbeddedCluster, load: Load) -> None:
    cluster.controller.kill()
    load.wait_for_more(100)
    cluster.controller.start()
    cluster.wait_for(lambda view: len(view.active_brokers) == len(cluster.brokers))
    leader = cluster.leader(topic_of(load), 0)
    leader.kill()
    load.wait_for_more(30)
    leader.start()


def test_a_paused_controller_fences_nobody_when_it_wakes(cluster: EmbeddedCluster, load: Load) -> None:
    epoch = cluster.view().leader_epoch(topic_of(load), 0)
    cluster.controller.pause()
    load.wait_for_more(1000)
    cluster.controller.resume()
    load.wait_for_more(100)
    view = cluster.wait_for(lambda view: len(view.active_brokers) == len(cluster.brokers))
    assert view.leader_epoch(topic_of(load), 0) == epoch


def test_leaders_move_on_request(cluster: EmbeddedCluster, load: Load) -> None:
    leader, follower = cluster.leader(topic_of(load), 0), cluster.followers(topic_of(load), 0)[0]
    cluster.move_leader(topic_of(load), 0, follower.id)
    assert cluster.leader(topic_of(load), 0) is follower
    load.wait_for_more(30)
    cluster.elect("preferred")
    cluster.wait_for(lambda view: view.leader(topic_of(load), 0) == view.replicas(topic_of(load), 0)[0])
    assert leader in cluster.brokers


def test_clients_that_are_cut_off_from_the_leader_fail_only_while_it_lasts(
    cluster: EmbeddedCluster, load: Load
) -> None:
    with cluster.cut(cluster.leader(topic_of(load), 0).id, "clients"):
        pass
    load.wait_for_more(30)


def test_too_few_in_sync_replicas_refuse_acks_all(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("strict", configs={"min.insync.replicas": "2"})
    leader = cluster.leader("strict", 0)
    others = cluster.followers("strict", 0)
    for other in others:
        other.kill()
    cluster.wait_for(lambda view: view.isr("strict", 0) == [leader.id])
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        acks="all",
        delivery_timeout_ms=1_500,
        request_timeout_ms=1_000,
        linger_ms=0,
    ) as producer:
        refused = producer.send("strict", b"refused", partition=0)
        with pytest.raises(KafkaError):
            refused.result(10)
        for other in others:
            other.start()
        cluster.wait_until_in_sync()
        assert producer.send("strict", b"taken", partition=0).result(10).offset >= 0


def test_a_partition_without_in_sync_replicas_waits_for_them_or_elects_uncleanly(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("unclean", assignment=[[1, 2]])
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
        producer.send("unclean", b"everywhere", partition=0).result(10)
        cluster.broker(2).kill()
        cluster.wait_for(lambda view: view.isr("unclean", 0) == [1])
        producer.send("unclean", b"on broker 1 only", partition=0).result(10)
        cluster.broker(1).kill()
        cluster.broker(2).start()
        cluster.wait_for(lambda view: 2 in view.active_brokers)
        assert cluster.view().leader("unclean", 0) is None
        cluster.elect("unclean", "unclean", 0)
        cluster.wait_for(lambda view: view.leader("unclean", 0) == 2)
    # A new one: the sequences of the first continue records that are lost, which its next batch would be refused for.
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
        producer.send("unclean", b"after", partition=0).result(10)
    cluster.broker(1).start()
    cluster.wait_until_in_sync()
    assert read_with_confluent(cluster.bootstrap_servers, "unclean", 1) == {0: [b"everywhere", b"after"]}
    ends = cluster.replicas("unclean", 0)
    assert ends[1][2] == ends[2][2]


def test_a_refused_wish_says_why(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("small", assignment=[[1]])
    with pytest.raises(
        EmbeddedBrokerError, match="answered ELIGIBLE_LEADERS_NOT_AVAILABLE to move_leader: no replica can"
    ):
        cluster.move_leader("small", 0, 2)
    with pytest.raises(EmbeddedBrokerError, match="no partition missing-0"):
        cluster.move_leader("missing", 0, 2)
    with pytest.raises(EmbeddedBrokerError, match="already exists"):
        cluster.create_topic("small")
