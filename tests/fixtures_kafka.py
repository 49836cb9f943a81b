"""Apache Kafka as fixtures: `kafka` (one node) and `kafka3` (three nodes, RF 3, min ISR 2), one of each a session.

Where Java or Maven is missing the tests are skipped with the reason; ``KAFKAPROD_REQUIRE_KAFKA=1`` makes it a failure.
"""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.kafka.cluster import LISTENERS, KafkaCluster
from tests.kafka.runtime import KafkaUnavailableError


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One node with all four listeners. Tests share it: use `topic_name`, do not stop it."""
    yield from running_cluster(KafkaCluster(1, listeners=LISTENERS))


@pytest.fixture(scope="session")
def kafka3() -> Iterator[KafkaCluster]:
    """Three nodes. A test that stops nodes must have all three running again at its end."""
    yield from running_cluster(KafkaCluster(3))


@pytest.fixture
def topic_name() -> str:
    """A topic name no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


def running_cluster(cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """Body of a fixture: start, yield, close; skip the test if Kafka cannot be had on this machine."""
    try:
        with cluster:
            yield cluster
    except KafkaUnavailableError as error:
        if os.environ.get("KAFKAPROD_REQUIRE_KAFKA") == "1":
            raise
        pytest.skip(str(error))
