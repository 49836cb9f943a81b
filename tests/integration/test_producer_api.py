"""What `Producer` promises besides delivery, against librdkafka's mock cluster."""

from __future__ import annotations

from kafkaprod import Producer
from tests.fixtures_mock_cluster import MockCluster

LIMIT_S = 10.0


def test_flush_of_what_is_delivered_already_returns_at_once(mock_cluster: MockCluster) -> None:
    with Producer(bootstrap_servers=mock_cluster.bootstrap) as producer:
        producer.flush(LIMIT_S)
        for _ in range(20):
            producer.send("topic", b"value").result(LIMIT_S)
            producer.flush(LIMIT_S)
