"""A load that is killed goes on with nothing lost and nothing twice; longer: `python -m tests.campaigns.load_kill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.campaigns.load_kill import TWO_INPUTS, ApacheKafka, OneBroker, kill_loads, servers_of
from tests.kafka.cluster import KafkaCluster
from tests.support.loader.killed_load import MANIFEST, NOTHING, TRANSACTIONS


@pytest.mark.parametrize("mode", [MANIFEST, TRANSACTIONS, TWO_INPUTS, NOTHING])
def test_a_load_killed_at_random_instants_loses_and_doubles_nothing(
    mode: str, embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    tally = kill_loads(OneBroker(embedded_broker), tmp_path, mode, 2, seed=1, row_count=8_000, has_rate=mode != NOTHING)
    assert tally.kills >= 2
    assert tally.is_good


@pytest.mark.slow
def test_a_load_into_a_cluster_that_dies_and_comes_back_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with servers_of("cluster") as servers:
        tally = kill_loads(servers, tmp_path, MANIFEST, 10, seed=3, row_count=12_000, has_deaths=True)
    assert tally.deaths
    assert tally.is_good


@pytest.mark.external
def test_a_load_into_kafka_killed_at_random_instants_loses_and_doubles_nothing(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    assert kill_loads(ApacheKafka(kafka), tmp_path, MANIFEST, 3, seed=2).is_good
