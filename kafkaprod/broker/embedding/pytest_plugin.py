"""An embedded broker or cluster as pytest fixtures: `pytest_plugins = ["kafkaprod.broker.embedding.pytest_plugin"]`.

The report of a test that failed shows the last records of its broker, or of its cluster, and the last changes of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker, EmbeddedBrokerError


@pytest.fixture(scope="session")
def kafkaprod_broker() -> Iterator[EmbeddedBroker]:
    """One broker for the session, which creates the topics that clients request; use different names in each test.

    After each test its faults are cleared, and it is started again if it does not run.
    """
    with EmbeddedBroker(auto_create_topics=True) as broker:
        yield broker


@pytest.fixture
def kafkaprod_fresh_broker() -> Iterator[EmbeddedBroker]:
    """A broker for one test, which creates the topics that clients request."""
    with EmbeddedBroker(auto_create_topics=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafkaprod_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers for the session; use different topics in each test.

    After each test the cluster is restored: links healed, faults cleared, brokers running and in sync.
    """
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def kafkaprod_fresh_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers for one test."""
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Undo what a test did to the session's broker and cluster, before its own fixtures end."""
    used = getattr(item, "funcargs", {})
    broker, cluster = used.get("kafkaprod_broker"), used.get("kafkaprod_cluster")
    if isinstance(broker, EmbeddedBroker):
        broker.restore()
    if isinstance(cluster, EmbeddedCluster):
        cluster.restore()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add what a failed test's brokers have, and the history of its clusters, to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for name, value in getattr(item, "funcargs", {}).items():
        if isinstance(value, EmbeddedBroker | EmbeddedCluster) and value.is_running:
            report.sections.append((f"last records of {name}", _last_records(value)))
        if isinstance(value, EmbeddedCluster) and value.is_running:
            report.sections.append((f"last changes of {name}", value.last_changes()))


def _last_records(used: EmbeddedBroker | EmbeddedCluster) -> str:
    try:
        return used.last_records()
    except EmbeddedBrokerError as error:
        return f"the records are not available: {error}"
