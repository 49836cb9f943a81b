"""`python -m tests.spark.exactly_once_on_kafka`: its faults, and a small run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.exactly_once_on_kafka import Goals, Plan, check, row_of, run
from tests.spark.faulty_daemon import PLACES, take_fault

SMALL = Goals(
    rows=8000, batches=2, worker_kills=1, task_failures=1, driver_kills=1, slow_tasks=0, is_local=True, seed=1
)


def test_fault_is_taken_once_and_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "worker.rows.0").touch()
    (tmp_path / "attempt.0.1.0").touch()
    assert take_fault(tmp_path, "commit") is None
    assert take_fault(tmp_path, "rows") == "worker"
    assert take_fault(tmp_path, "rows") is None
    assert (tmp_path / "done.worker.rows.0").exists()


def test_plan_puts_every_fault_one_after_the_other(tmp_path: Path) -> None:
    goals = Goals(
        rows=0, batches=20, worker_kills=10, task_failures=5, driver_kills=3, slow_tasks=3, is_local=False, seed=7
    )
    plan, taken = Plan(goals, tmp_path), []
    for batches in range(goals.batches):
        plan.put(batches)
        plan.put(batches)  # nothing more while a fault waits
        for place in PLACES:
            while (kind := take_fault(tmp_path, place)) is not None:
                taken.append(kind)
                plan.put(batches)
    assert sorted(taken) == ["executor"] * 3 + ["fail"] * 5 + ["slow"] * 3 + ["worker"] * 7


@pytest.mark.parametrize(
    ("numbers", "message"),
    [([0, 1, 1], "row 1 is there twice"), ([0], "1 rows are lost, the first of them 1"), ([0, 1, 2], "not written")],
)
def test_reader_that_finds_other_rows_is_an_error(numbers: list[int], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(iter([row_of(number).encode() for number in numbers]), 2, "a reader")


@pytest.mark.slow
@pytest.mark.external
def test_stream_into_kafka_writes_each_row_once_whatever_dies() -> None:
    tally = run(SMALL, reads_with_java=False)
    assert (tally.worker_kills, tally.task_failures, tally.driver_kills) == (1, 1, 1)
