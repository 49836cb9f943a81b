"""A load that is killed goes on with nothing lost and nothing twice; longer: `python -m tests.campaigns.load_kill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.campaigns.load_kill import kill_loads
from tests.kafka.cluster import KafkaCluster


def test_a_load_killed_at_random_instants_loses_and_doubles_nothing(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    tally = kill_loads(embedded_broker.bootstrap_servers, tmp_path, 4, 300_000, 0.4, seed=1)
    assert tally.is_good


def test_a_load_in_transactions_killed_at_random_instants_commits_every_row_once(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    servers = embedded_broker.bootstrap_servers
    tally = kill_loads(servers, tmp_path, 20, 200_000, 0.4, seed=5, has_transactions=True)
    assert tally.is_good
    assert tally.resumed_inside


@pytest.mark.external
def test_a_load_into_kafka_killed_at_random_instants_loses_and_doubles_nothing(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    tally = kill_loads(kafka.bootstrap(), tmp_path, 3, 300_000, 0.4, seed=2)
    assert tally.is_good
