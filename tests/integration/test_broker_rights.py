"""Who has no right learns and changes nothing at a broker that Apache Kafka's would not show or change.

All combinations of names: `python -m tests.campaigns.rights --kafka`.
"""

from __future__ import annotations

import pytest

from kafkaprod.protocol.api_keys import ApiKey
from tests.campaigns.rights import TOKEN_APIS, beside_kafka, check

BESIDE_KAFKA = [
    *(ApiKey.METADATA, ApiKey.DELETE_TOPICS, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_CONFIGS, ApiKey.FIND_COORDINATOR),
    *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.ADD_PARTITIONS_TO_TXN),
    *sorted(TOKEN_APIS),
]


@pytest.mark.external
def test_apache_kafka_refuses_and_shows_the_same() -> None:
    check(beside_kafka(BESIDE_KAFKA, 2))
