"""An embedded broker or cluster as pytest fixtures, which pytest finds by itself where the package is installed.

It is loaded in every run of pytest there, so it loads nothing itself before a test uses one of the fixtures.
The report of a test that failed shows the last records of its broker, or of its cluster, and the last changes of that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster


@pytest.fixture(scope="session")
def kafkaprod_broker() -> Iterator[EmbeddedBroker]:
    """One broker for the session, which creates the topics that clients request; use different names in each test.

    After each test its faults are cleared, and it is started again if it does not run.
    """
    from kafkaprod.broker import EmbeddedBroker

    with EmbeddedBroker(auto_create_topics=True, record_requests=True) as broker:
        yield broker


@pytest.fixture
def kafkaprod_fresh_broker() -> Iterator[EmbeddedBroker]:
    """A broker for one test, which creates the topics that clients request."""
    from kafkaprod.broker import EmbeddedBroker

    with EmbeddedBroker(auto_create_topics=True, record_requests=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafkaprod_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers for the session; use different topics in each test.

    After each test the cluster is restored: links healed, faults cleared, brokers running and in sync.
    """
    from kafkaprod.broker import EmbeddedCluster

    with EmbeddedCluster(brokers=3, record_requests=True) as cluster:
        yield cluster


@pytest.fixture
def kafkaprod_fresh_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers for one test."""
    from kafkaprod.broker import EmbeddedCluster

    with EmbeddedCluster(brokers=3, record_requests=True) as cluster:
        yield cluster


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Undo what a test did to the session's broker and cluster, before its own fixtures end."""
    used = getattr(item, "funcargs", {})
    broker, cluster = used.get("kafkaprod_broker"), used.get("kafkaprod_cluster")
    for used_one in (broker, cluster):
        if used_one is not None and _is_ours(used_one):
            used_one.restore()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Note what the brokers have before a test: its report shows what was written since."""
    for value in getattr(item, "funcargs", {}).values():
        if _is_ours(value) and value.is_running:
            from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError

            with contextlib.suppress(EmbeddedBrokerError):
                value.note_topics()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add what a failed test's brokers have, and the history of its clusters, to its report."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    for name, value in getattr(item, "funcargs", {}).items():
        if not _is_ours(value) or not value.is_running:
            continue
        report.sections.append((f"last records of {name}", _last_records(value)))
        if hasattr(value, "last_changes"):
            report.sections.append((f"last changes of {name}", value.last_changes()))


def _is_ours(value: object) -> bool:
    """Return whether it is an embedded broker or cluster: where there is one, its module is loaded."""
    places = (("embedded", "EmbeddedBroker"), ("cluster", "EmbeddedCluster"))
    modules = ((sys.modules.get(f"kafkaprod.broker.embedding.{module}"), name) for module, name in places)
    return any(module is not None and isinstance(value, getattr(module, name)) for module, name in modules)


def _last_records(used: EmbeddedBroker | EmbeddedCluster) -> str:
    from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError

    try:
        return used.last_records()
    except EmbeddedBrokerError as error:
        return f"the records are not available: {error}"
