"""Jobs that are run again write their rows once in simulated clusters, and the simulation notices when a rule is off.

In full: `python -m tests.simulation --jobs --seeds 2000`, and with `--rules`. That the coordinator which takes a mark
is asked for the one before is tried in `tests/integration/test_repeated_writes.py`: no seed has met the moment yet.
"""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import run_seed, seeds_until_noticed
from tests.simulation.job_day import JobDay
from tests.simulation.job_rules import JOB_RULES
from tests.simulation.run import Outcome

MOST_SEEDS = 20


@pytest.mark.parametrize("seed", range(4))
def test_jobs_that_are_run_again_write_once(seed: int) -> None:
    outcome = run_seed(seed, JobDay)
    assert isinstance(outcome, Outcome), outcome


def test_job_days_have_all_that_they_are_about() -> None:
    """Runs are killed, follow others and run beside them, find rows that are there, and continue behind parts."""
    history: list[str] = []
    parts = repeated = written = 0
    for seed in range(10):
        day = JobDay(seed)
        day.run()
        history += day.world.history
        results = [result for job in day.jobs.values() for result in job.results]
        written += sum(not result.already_written for result in results)
        repeated += sum(result.already_written for result in results)
        parts += sum(result.parts > 1 for result in results)
    assert min(written, repeated) > 5
    assert parts > 2
    for text in ("another instance of kafkaprod.write", ", kafkaprod.write", "WriteTakenOverError"):
        assert any(text in line for line in history), text


@pytest.mark.parametrize("rule", JOB_RULES)
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    assert seeds_until_noticed(rule, 0, MOST_SEEDS) is not None
