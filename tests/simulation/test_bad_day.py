"""Producers keep their promises on bad days. In full: `python -m tests.simulation --bad-day --seeds 2000`."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import run_seed
from tests.simulation.bad_day import BadDay
from tests.simulation.case_rules import CASES, play
from tests.simulation.run import Outcome
from tests.simulation.world import Link


@pytest.mark.parametrize("seed", range(6))
def test_a_producer_keeps_its_promises_on_a_bad_day(seed: int) -> None:
    outcome = run_seed(seed, BadDay)
    assert isinstance(outcome, Outcome), outcome
    assert outcome.delivered + outcome.failed > 0


def test_bad_days_have_their_faults() -> None:
    """Each kind of fault comes, and programs wait for memory, within a few seeds."""
    history: list[str] = []
    for seed in range(8):
        simulation = BadDay(seed)
        simulation.run()
        history += simulation.world.history
    for text in ("is gray: Gray(answer_ms=None", "bytes a second pass", "ms each way", "lose [", "waits for memory"):
        assert any(text in line for line in history), text


@pytest.mark.parametrize("rule", CASES)
def test_a_bad_day_passes_with_its_rule_and_not_without(rule: str) -> None:
    assert play(rule, is_on=True) is None
    assert play(rule, is_on=False) is not None


def test_the_same_seed_gives_the_same_bad_day() -> None:
    assert BadDay(2).run() == BadDay(2).run()


def test_a_link_passes_what_is_sent_first() -> None:
    link = Link(bytes_per_s=1000)
    assert link.passes_at_ms(100, 50) == 150
    assert link.passes_at_ms(120, 30) == 180
    assert link.passes_at_ms(1000, 1) == 1001
