"""What hostile clients cost: bounded memory, and an honest client that is served meanwhile.

The bounds of time are wide, for busy machines; `python -m tests.campaigns.hostile_clients` measures against those
that are meant. One attack of each kind runs always, the others at night.
"""

from __future__ import annotations

import os

import pytest

from tests.campaigns.hostile_clients import ATTACKS, MAX_RESIDENT_BYTES, MAX_TURN_S, run_attack

PATIENCE_S = 20.0
# Memory that a small request asks for, a long turn of the event loop, files, requests that never end, many connections.
ALWAYS = {
    "zstd bomb",
    "24,000 batches in one request",
    "3,000 partitions",
    "half requests",
    "metadata of 3M names",
    "crowd before the login",
}
CASES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.nightly) for name in ATTACKS]


def test_what_always_runs_is_among_the_attacks() -> None:
    assert ATTACKS.keys() >= ALWAYS


@pytest.mark.parametrize("name", CASES)
def test_attack_takes_bounded_memory_and_others_are_served(name: str) -> None:
    if name == "3,000 partitions" and os.environ.get("KAFKAPROD_SELECTOR") == "select":
        pytest.skip("select() takes no descriptor above 1,023: its log files leave none below for a client")
    outcome = run_attack(name, 1.0)
    assert outcome.request_count > 0
    assert outcome.resident_bytes < MAX_RESIDENT_BYTES
    assert outcome.longest_wait_s < PATIENCE_S
    assert outcome.longest_turn.cpu_s < 2 * MAX_TURN_S, outcome.longest_turn
