"""Simulated clusters keep what they acknowledge, and the simulation notices when a rule is off.

In full: `python -m tests.simulation --seeds 2000` and `python -m tests.simulation --rules --seeds 200`.
"""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import run_seed, seeds_until_noticed
from tests.simulation.run import Outcome, Simulation

NOTICED_SOON = [
    "a fenced broker leaves the ISR",
    "a member that is to leave holds the watermark",
    "a refused proposal is not in force",
    "an old leader's proposals are refused",
    "logs are cut where they part",
    "logs are not cut at the watermark",
]


@pytest.mark.parametrize("seed", range(12))
def test_a_cluster_keeps_what_it_acknowledges(seed: int) -> None:
    outcome = run_seed(seed)
    assert isinstance(outcome, Outcome), outcome
    assert outcome.acknowledged > 50
    assert outcome.faults > 2


@pytest.mark.parametrize("rule", NOTICED_SOON)
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    assert seeds_until_noticed(rule, 0, 12) is not None


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = Simulation(3), Simulation(3)
    assert first.run() == second.run()
    assert first.world.history == second.world.history
    assert first.world.event_count == second.world.event_count
