"""Who has no right learns and changes nothing: a cluster beside one without secrets, a broker beside Apache Kafka.

All combinations of names: `python -m tests.campaigns.rights`.
"""

from __future__ import annotations

import pytest

from kafkaprod.protocol.api_keys import ApiKey
from tests.campaigns.rights import APIS, Counts, beside_kafka, beside_twin, cluster_of_three, explanation

BESIDE_KAFKA = [
    *(ApiKey.METADATA, ApiKey.DELETE_TOPICS, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_CONFIGS, ApiKey.FIND_COORDINATOR),
    *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.ADD_PARTITIONS_TO_TXN),
]


def check(counts: Counts) -> None:
    assert counts.changed == []
    assert [kind for kind in counts.different if not explanation(kind)] == []
    assert counts.refused > 100
    assert counts.allowed > 100


@pytest.mark.parametrize("part", range(4))
def test_in_a_cluster_nobody_learns_or_changes_what_they_have_no_right_to(part: int) -> None:
    check(beside_twin(cluster_of_three, 3, APIS[part::4], 2))


@pytest.mark.external
def test_apache_kafka_refuses_and_shows_the_same() -> None:
    check(beside_kafka(BESIDE_KAFKA, 2))
