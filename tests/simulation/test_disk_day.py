"""Clusters keep their promises while disks fail and replicas move, and the simulation notices when a rule is off.

In full: `python -m tests.simulation --disks --seeds 2000`, and with `--rules`.
"""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import run_seed, seeds_until_noticed
from tests.simulation.disk_day import DiskDay
from tests.simulation.disk_rules import DISK_RULES
from tests.simulation.run import Outcome

# The seed that notices a rule that is off; see `test_simulation`.
NOTICED_BY = {
    "a broker notices that a disk has failed": 6,
    "a failed replica neither leads nor follows": 0,
    "a move waits for the metadata": 0,
    "a replica on a missing disk is not made again": 6,
    "a replica in the ISR had a log": 404_575,
}

RARELY_NOTICED = {"a copy alone is no replica", "a replica without its disk does not lead"}
"""What these keep from happening takes a kill in a few milliseconds, or costs only time; their unit tests notice."""


@pytest.mark.parametrize("seed", range(6))
def test_clusters_keep_their_promises_while_disks_fail(seed: int) -> None:
    outcome = run_seed(seed, DiskDay)
    assert isinstance(outcome, Outcome), outcome


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (run_seed(3, DiskDay) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("rule", sorted(NOTICED_BY))
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    assert seeds_until_noticed(rule, NOTICED_BY[rule], 1) is not None


def test_each_rule_has_its_seed() -> None:
    assert set(NOTICED_BY) | RARELY_NOTICED == set(DISK_RULES)
