"""The worst request of each API in small: the broker stays small and quick, and goes on.

The whole sizes, and how long an honest client waits: `python -m tests.campaigns.worst_requests`.
"""

from __future__ import annotations

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.campaigns.hostile_clients import TOPIC
from tests.campaigns.worst_requests import MAX_BYTES, announced, worst_costs

MAX_CPU_S = 1.0
"""Of a request in small, and of the honest client beside it."""


def test_no_api_has_a_request_that_takes_long_or_much_memory() -> None:
    with EmbeddedBroker(topics={TOPIC: 1}) as broker:
        apis = announced(broker.bootstrap_servers)
    assert len(apis) > 50
    wrong = []
    for api, version in apis:
        for shape, cost in worst_costs(api, version, elements=400, text=2_000):
            if cost.cpu_s > MAX_CPU_S or cost.grown_bytes > MAX_BYTES:
                wrong.append((api.name, version, shape, cost))
    assert not wrong
