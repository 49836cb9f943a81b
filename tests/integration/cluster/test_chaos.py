"""Faults that are drawn by a seed, and power cuts: what is acknowledged by all replicas stays."""

from __future__ import annotations

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.support.cluster.load import Load
from tests.support.cluster.reading import read_with_confluent

PARTITIONS = 2


def test_chaos_loses_nothing_and_ends_whole() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": PARTITIONS}) as cluster:
        with Load(cluster.bootstrap_servers, "orders", PARTITIONS) as load:
            with cluster.chaos(seed=3, kinds=("kill", "power cut", "one-way cut"), period_ms=100) as faults:
                while len(faults) < 4:
                    load.wait_for_more(50, 60)
            assert cluster.view().is_in_sync
            load.wait_for_more(50)
        assert load.failed == []
        assert read_with_confluent(cluster.bootstrap_servers, "orders", PARTITIONS) == load.in_order


def test_an_unknown_kind_of_fault_is_refused() -> None:
    with EmbeddedCluster(brokers=1) as cluster, pytest.raises(ValueError, match="kinds='flood' is not one of kill"):
        cluster.chaos(seed=1, kinds=("flood",))


def test_a_replica_alone_loses_what_it_had_not_synced() -> None:
    with EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for _ in range(5):
                producer.send("orders", b"x" * 1_000, partition=0).result(20)
        before = cluster.replicas("orders", 0)[1][2]
        assert cluster.brokers[0].power_cut(seed=1) > 0
        cluster.brokers[0].start()
        cluster.wait_until_in_sync()
        assert cluster.replicas("orders", 0)[1][2] < before


def test_an_isr_is_shrunk_under_load() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 1}, replica_lag_ms=500) as cluster:
        leader = cluster.leader("orders", 0)
        with Load(cluster.bootstrap_servers, "orders", 1, acks=1, enable_idempotence=False) as load:
            load.wait_for_more(10)
            cluster.shrink_isr("orders", 0, to=1)
            assert cluster.isr("orders", 0) == [leader.id]
        cluster.heal()
        cluster.wait_until_in_sync()


def test_the_coordinator_of_a_group_leads_its_log() -> None:
    with EmbeddedCluster(brokers=2, topics={"orders": 1}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine") as producer:
            producer.init_transactions()
        coordinator = cluster.coordinator_of("mine", "transaction")
        assert coordinator.id == cluster.leader("__transaction_state", 0).id
