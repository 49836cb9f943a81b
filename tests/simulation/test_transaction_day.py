"""Transactions and groups keep their promises in simulated clusters, and the simulation notices when a rule is off.

In full: `python -m tests.simulation --transactions --seeds 2000`, and with `--rules`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import run_seed, seeds_until_noticed
from tests.simulation.run import Outcome
from tests.simulation.transaction_day import TransactionDay
from tests.simulation.transaction_rules import TRANSACTION_RULES

# The seed that notices a rule that is off; see `test_simulation`.
NOTICED_BY = {
    "a commit without an answer may have happened": 7,
    "a consumer group keeps its epochs from coordinator to coordinator": 2,
    "a consumer group refuses the commit of an older epoch": 58,
    "a consumer that is silent leaves its group": 0,
    "a coordinator answers when its replicas have what it says": 3,
    "a coordinator completes what the one before decided": 3,
    "a coordinator reads the log of the one before": 0,
    "a coordinator reads the offsets of the one before": 0,
    "a coordinator refuses an older producer epoch": 8,
    "a coordinator watches the members of the one before": 2,
    "a coordinator writes in its own epoch only": 177,
    "a group keeps its generation from coordinator to coordinator": 2,
    "a group refuses the commit of an older generation": 7,
    "a log refuses an older producer epoch": 0,
    "a marker counts when it is replicated": 45,
    "a marker is sent until it is written": 2,
    "a marker waits for the replicas": 0,
    "a member loses a partition when it says that it has given it up": 0,
    "a member that is silent leaves its group": 0,
    "a member waits for offsets that a transaction may change": 0,
    "a partition is given when others have given it up": 0,
    "a transaction commits the offsets of a member in its epoch": 23,
    "a transaction that is open for too long is aborted": 6,
    "a transaction with a failed record is not committed": 0,
    "a verification ends with the marker": 45,
    "an instance that begins ends the transaction of the one before": 0,
    "an instance that begins gets an epoch of its own": 0,
    "committed records end at the last stable offset": 0,
    "markers go out when the decision is replicated": 115,
    "markers go to all partitions": 0,
    "offsets of a committed transaction count": 0,
    "offsets of a transaction wait for its end": 0,
    "offsets of an aborted transaction are dropped": 0,
    "readers learn which transactions are aborted": 0,
    "the first record of a transaction asks the coordinator": 0,
    "what a member leaves behind is given to others": 0,
}

MOST_SEEDS = 40


@pytest.mark.parametrize("seed", range(6))
def test_transactions_and_groups_keep_their_promises(seed: int) -> None:
    outcome = run_seed(seed, TransactionDay)
    assert isinstance(outcome, Outcome), outcome


def test_transaction_days_have_all_that_they_are_about() -> None:
    """Transactions are committed and aborted, programs end and begin, and groups rebalance, in a few seeds."""
    history: list[str] = []
    committed = aborted = commits = generations = epochs = consumer_commits = processed = 0
    for seed in range(24):
        day = TransactionDay(seed)
        day.run()
        history += day.world.history
        committed += day.ledger.committed_count
        aborted += day.ledger.aborted_count
        commits += day.groups.commit_count
        generations += len(day.groups.generations)
        side = day.consumer_side
        epochs += len(side.committed.generations)
        consumer_commits += side.committed.commit_count
        processed += side.processed.commit_count
    assert min(committed, aborted) > 10
    assert commits > 100
    assert generations > 20
    assert epochs > 50
    assert consumer_commits > 100
    assert processed > 10
    texts = ("another instance of", "kill engine", "kill member", "pause member", "its place is taken", "pause engine")
    for text in (*texts, "kill consumer", "pause consumer", "leaves, and another one comes"):
        assert any(text in line for line in history), text


@pytest.mark.parametrize("rule", NOTICED_BY)
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    assert seeds_until_noticed(rule, NOTICED_BY[rule], MOST_SEEDS) is not None


def test_every_rule_has_its_seed() -> None:
    assert set(TRANSACTION_RULES) == set(NOTICED_BY)


def test_another_process_gives_the_same_bytes() -> None:
    program = (
        "from tests.simulation.transaction_day import TransactionDay; d = TransactionDay(5);"
        "print(d.run().digest, d.ledger.committed_count, d.groups.commit_count)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
