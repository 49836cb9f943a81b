"""An embedded broker or cluster as pytest fixtures: `pytest_plugins = ["kafkaprod.broker.embedding.pytest_plugin"]`.

The report of a test that failed with a cluster shows the last changes of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def kafkaprod_broker() -> Iterator[EmbeddedBroker]:
    """One broker for the session, which creates the topics that clients request; use different names in each test."""
    with EmbeddedBroker(auto_create_topics=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafkaprod_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers for the session; leave them running and in sync, and use different topics in each test."""
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def kafkaprod_fresh_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers for one test."""
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the history of the clusters that a failed test used to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for name, value in getattr(item, "funcargs", {}).items():
        if isinstance(value, EmbeddedCluster) and value.is_running:
            report.sections.append((f"last changes of {name}", value.last_changes()))
