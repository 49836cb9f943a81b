from __future__ import annotations

from itertools import product

import pytest

from kafkaprod.engine.transactions.machine import TransactionMachine
from kafkaprod.engine.transactions.states import TRANSITIONS, State
from kafkaprod.errors import IllegalStateError
from tests.support.config import unchecked_config

ILLEGAL = [(a, b) for a, b in product(State, State) if b not in TRANSITIONS[a]]


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize(("source", "target"), ILLEGAL)
def test_illegal_move_raises_and_changes_nothing(source: State, target: State) -> None:
    machine = TransactionMachine(unchecked_config(transactional_id="tx"), lambda: 0.5)
    machine.state = source
    with pytest.raises(IllegalStateError, match="cannot go from"):
        machine._move(target)
    assert machine.state is source


def test_only_a_fatal_error_has_no_way_out() -> None:
    assert [state for state in State if not TRANSITIONS[state]] == [State.FATAL_ERROR]
    assert all(State.FATAL_ERROR in TRANSITIONS[state] for state in State if state is not State.FATAL_ERROR)
