"""Apache Kafka as fixtures: `kafka` (one node) and `kafka3` (three nodes, RF 3, min ISR 2), one of each a session.

Each node's PROXIED listener sits behind a fault proxy, see `tests.support.kafka.fixtures_proxy`. Where Java or Maven is
missing the tests are skipped with the reason; ``KAFKAPROD_REQUIRE_KAFKA=1`` makes it a failure.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.kafka.broker_properties import LISTENERS
from tests.kafka.cluster import KafkaCluster
from tests.kafka.proxy import FaultProxy
from tests.kafka.runtime import KafkaUnavailableError, tools_class_path


@dataclass(frozen=True)
class ProxiedCluster:
    """A running cluster, and by node id the proxy its PROXIED listener advertises."""

    cluster: KafkaCluster
    proxies: dict[int, FaultProxy]


@contextlib.contextmanager
def skipped_where_unavailable() -> Iterator[None]:
    """Skip the test if Java or Maven is missing, or fail it if Kafka is required."""
    try:
        yield
    except KafkaUnavailableError as error:
        if os.environ.get("KAFKAPROD_REQUIRE_KAFKA") == "1":
            raise
        pytest.skip(str(error))


def proxied_cluster(cluster: KafkaCluster) -> Iterator[ProxiedCluster]:
    """Body of a fixture: start a cluster with its proxies, yield, close; skip if this machine cannot run Kafka."""
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.close)
        proxies = {}
        for node_id in cluster.node_ids:
            proxy = stack.enter_context(FaultProxy(cluster.address(node_id, "PROXIED")))
            cluster.advertise(node_id, *proxy.address, "PROXIED")
            proxies[node_id] = proxy
        with skipped_where_unavailable():
            cluster.start()
        yield ProxiedCluster(cluster, proxies)


@pytest.fixture(scope="session")
def kafka_rig() -> Iterator[ProxiedCluster]:
    """One node with every listener, and its proxy."""
    yield from proxied_cluster(KafkaCluster(1, listeners=tuple(LISTENERS)))


@pytest.fixture(scope="session")
def kafka3_rig() -> Iterator[ProxiedCluster]:
    """Three nodes and their proxies."""
    yield from proxied_cluster(KafkaCluster(3, listeners=("PLAINTEXT", "PROXIED")))


@pytest.fixture(scope="session")
def kafka(kafka_rig: ProxiedCluster) -> KafkaCluster:
    """One node with every listener. Tests share it: use `topic_name`, do not stop it."""
    return kafka_rig.cluster


@pytest.fixture(scope="session")
def kafka3(kafka3_rig: ProxiedCluster) -> KafkaCluster:
    """Three nodes. A test that stops nodes must have all three running again at its end."""
    return kafka3_rig.cluster


@pytest.fixture(scope="session")
def kafka_tools() -> str:
    """Class path of Kafka's Java tools."""
    with skipped_where_unavailable():
        return tools_class_path()


@pytest.fixture
def topic_name() -> str:
    """A topic name no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
