"""What hostile clients cost: bounded memory, and an honest client that is served meanwhile.

The bounds of time are wide, for busy machines; `python -m tests.hostile_clients` measures against those that are meant.
"""

from __future__ import annotations

import pytest

from tests.hostile_clients import ATTACKS, MAX_RESIDENT_BYTES, run_attack

PATIENCE_S = 20.0


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_takes_bounded_memory_and_others_are_served(name: str) -> None:
    outcome = run_attack(name, 1.0)
    assert outcome.request_count > 0
    assert outcome.resident_bytes < MAX_RESIDENT_BYTES
    assert outcome.longest_wait_s < PATIENCE_S
