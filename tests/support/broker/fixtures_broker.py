"""The embedded broker as a fixture, and bounded waits for what happens in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker

PATIENCE_S = 60.0  # far beyond what an idle machine needs; a test that hits it has failed


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests that do not stop it; asked for a topic, it makes one with 3 partitions."""
    with EmbeddedBroker(auto_create_topics=True, num_partitions=3) as broker:
        yield broker
        broker.faults.clear()


def wait_until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Call `condition` until it is true; it should itself wait for something, a poll with a timeout say."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"{what}: not within {patience_s} s")
