"""A few of the kills of `python -m tests.campaigns.commit_outcomes`."""

import pytest

from tests.campaigns.commit_outcomes import PRODUCERS, may_be, plant, run

KILLS = 2
LOSSES = 1


@pytest.mark.external
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", [1, 2])
def test_what_a_commit_says_is_so_when_its_coordinator_is_killed(level: int) -> None:
    tally = run(KILLS, seed=4, level=level, losses=LOSSES)
    assert tally.total() == (KILLS + LOSSES) * PRODUCERS
    assert {said for said, _ in tally} & {
        "unknown, TransactionAbortableError, abort fails",
        "unknown, ProducerFencedError",
    }


@pytest.mark.external
@pytest.mark.timeout(600)
def test_a_client_that_takes_a_refusal_after_a_lost_answer_for_the_truth_is_found() -> None:
    with plant(), pytest.raises(AssertionError, match="said, and not so"):
        run(0, seed=4, level=2, losses=LOSSES)


@pytest.mark.parametrize(
    ("said", "may_be_seen", "may_be_unseen"),
    [
        ("committed", True, False),
        ("not committed, ProducerFencedError", False, True),
        ("not committed, TransactionAbortableError, abort fails", False, True),
        ("unknown, TransactionAbortableError, abort fails", True, True),
        ("unknown, TransactionAbortableError, then aborted", False, True),
        ("unknown, given up", True, True),
    ],
)
def test_wrong_words_are_noticed(said: str, may_be_seen: bool, may_be_unseen: bool) -> None:
    assert (may_be(said, True), may_be(said, False)) == (may_be_seen, may_be_unseen)
