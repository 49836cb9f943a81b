"""The worst request of each API in small: the broker stays small and quick, and goes on.

The whole sizes, and how long an honest client waits: `python -m tests.campaigns.worst_requests`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.protocol.messages import REQUESTS
from tests.campaigns.hostile_clients import ask, cpu_seconds, peak_resident_bytes
from tests.campaigns.worst_requests import MAX_BYTES, announced, answer_to, frames, new_broker

MAX_CPU_S = 1.0
"""Of all shapes of a request in small."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with new_broker() as running:
        yield running


@pytest.mark.parametrize("part", range(8))
def test_no_api_has_a_request_that_takes_long_or_much_memory(broker: EmbeddedBroker, part: int) -> None:
    apis = announced(broker.bootstrap_servers)
    assert len(apis) > 50
    for api, version in apis[part::8]:
        before, used_s = peak_resident_bytes(broker.pid), cpu_seconds(broker.pid)
        for _, frame in frames(REQUESTS[api], version, 400, 2_000):
            answer_to(broker.bootstrap_servers, frame, 1.0)
        assert cpu_seconds(broker.pid) - used_s <= MAX_CPU_S, api
        assert peak_resident_bytes(broker.pid) - before <= MAX_BYTES, api
        ask(broker.bootstrap_servers, False)
