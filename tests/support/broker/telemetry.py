"""Wait for metrics that clients push (KIP-714) to an embedded broker."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.settings.client_metrics import Push


def pushes_until(
    broker: EmbeddedBroker, is_enough: Callable[[list[Push]], bool], timeout_s: float = 20.0
) -> list[Push]:
    """Return the pushes when there are enough; raises AssertionError after `timeout_s`."""
    pushes: list[Push] = []
    end = time.monotonic() + timeout_s
    while not is_enough(pushes):
        assert time.monotonic() < end, f"{len(pushes)} pushes in {timeout_s} s"
        pushes += broker.take_client_metrics()
        time.sleep(0.02)
    return pushes
