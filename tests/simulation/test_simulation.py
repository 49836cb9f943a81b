"""Simulated clusters keep what they acknowledge, and the simulation notices when a rule is off.

In full: `python -m tests.simulation --seeds 2000` and `python -m tests.simulation --rules --seeds 200`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import run_seed, seeds_until_noticed
from tests.simulation.rules import BY_CASE, RULES
from tests.simulation.run import Outcome, Simulation
from tests.unit.broker.kafka_bugs.table import CASES

# The seed that notices a rule that is off. A change of the state machines or the engine gives seeds other histories, so
# some more are tried; `--rules` finds new ones.
NOTICED_BY = {
    "a fenced broker leaves the ISR": 2,
    "a fetch does not wait where another broker leads by now": 2,
    "a gap begins a new epoch": 2,
    "a refused proposal is not in force": 22,
    "a retried batch keeps its sequence": 1,
    "a follower joins when it has caught up": 5,
    "a member that is to leave holds the watermark": 7,
    "a broker follows what a snapshot changes": 0,
    "a snapshot has the epochs of partitions": 0,
    "a snapshot has the next producer id": 0,
    "a waiting fetch is answered as soon as there is enough": 0,
    "an end waits for the start of the leader's epoch": 3,
    "an ended request is under way no more": 0,
    "an old leader's proposals are refused": 7,
    "clients read up to the high watermark": 0,
    "logs are cut where they part": 2,
    "logs are not cut at the watermark": 2,
    "only a leader says where a partition ends": 0,
    "the log of a deleted topic is not used again": 13,
}

MOST_SEEDS = 60


# Seeds that once failed, and why.
ONCE_FAILED = {
    367: "the answer to a registration came after the broker had stopped",
    900: "the same",
    88656: "a broker that had started again took the answer to a fetch of its former process",
    111751: "what a topic acknowledged before it was created again counted for the new one",
    146886: "a broker that had started again led by metadata from before its registration, with records lost",
    75059: "a broker that led without a record, then followed, forgot where the epoch before had started",
    114262: "metadata came before the answer to the registration that it was for, and never again",
}


@pytest.mark.parametrize("seed", [*range(8), *ONCE_FAILED])
def test_a_cluster_keeps_what_it_acknowledges(seed: int) -> None:
    outcome = run_seed(seed)
    assert isinstance(outcome, Outcome), outcome
    assert outcome.acknowledged > 10
    assert outcome.delivered + outcome.failed > 0
    assert outcome.faults > 1


@pytest.mark.parametrize("rule", NOTICED_BY)
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    assert seeds_until_noticed(rule, NOTICED_BY[rule], MOST_SEEDS) is not None


def test_every_rule_is_noticed_somewhere() -> None:
    assert set(RULES) == set(NOTICED_BY) | set(BY_CASE)
    assert set(BY_CASE.values()) <= {case.bug for case in CASES}


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = Simulation(3), Simulation(3)
    assert first.run() == second.run()
    assert first.world.history == second.world.history
    assert first.world.digest == second.world.digest


def test_another_process_gives_the_same_bytes() -> None:
    """Nothing depends on the order of sets, which another process chooses anew, or on addresses in memory."""
    program = "from tests.simulation.run import Simulation; print(Simulation(5).run().digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {Simulation(5).run().digest + "\n"}
