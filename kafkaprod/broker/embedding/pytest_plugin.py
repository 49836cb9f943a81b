"""An embedded broker as a pytest fixture: `pytest_plugins = ["kafkaprod.broker.embedding.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def kafkaprod_broker() -> Iterator[EmbeddedBroker]:
    """One broker for the session, which creates the topics that clients request; use different names in each test."""
    with EmbeddedBroker(auto_create_topics=True) as broker:
        yield broker
