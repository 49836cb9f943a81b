"""Few of the faults of `python -m tests.campaigns.transaction_faults`."""

from __future__ import annotations

import pytest

from tests.campaigns.transaction_faults import run_copy, run_kills


@pytest.mark.parametrize("level", [1, 2])
def test_killed_broker_keeps_what_was_committed_and_shows_nothing_else(level: int) -> None:
    tally = run_kills(5, level, seed=level)
    assert tally.kills == 5
    assert tally.committed > 5


def test_copying_loop_writes_each_record_once_whatever_fails() -> None:
    tally = run_copy(5000, 2, seed=1)
    assert tally.records == 5000
    assert tally.kills + tally.faults >= 3
