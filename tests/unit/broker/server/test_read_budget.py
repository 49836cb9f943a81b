"""The budget of unfinished requests: its bound holds, and every frame comes to its end."""

from __future__ import annotations

import random

import pytest

from kafkaprod.broker.server.read_budget import ReadBudget

MIB = 1 << 20


def test_all_may_read_while_there_is_room() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    budget.update("a", 20 * MIB, True)
    assert not budget.is_scarce
    assert budget.room("a", MIB) == budget.room("b", MIB) == MIB


def test_beyond_it_only_small_holders_and_the_oldest_read() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    budget.update("first", 13 * MIB, True)
    budget.update("second", 13 * MIB, True)
    budget.update("small", 1 * MIB, True)
    assert budget.room("first", MIB) == MIB
    assert budget.room("second", MIB) == 0
    assert budget.room("small", MIB) == MIB
    assert budget.room("newcomer", MIB) == MIB
    budget.update("first", 0, False)
    budget.update("other", 13 * MIB, True)
    assert budget.room("second", MIB) == MIB


def test_finished_requests_that_are_not_handled_count_too() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    for name in "abcd":
        budget.update(name, 16 * MIB, False)
    budget.update("head", 15 * MIB, True)
    assert budget.room("head", MIB) == 0
    budget.update("a", 0, False)
    assert budget.room("head", MIB) == MIB


def test_limit_leaves_room_for_two_frames() -> None:
    assert ReadBudget(MIB, 16 * MIB).limit_bytes == 32 * MIB


@pytest.mark.parametrize("seed", range(5))
def test_bound_holds_and_every_frame_ends(seed: int) -> None:
    draw = random.Random(seed)
    read_bytes, frame_bytes = 256 * 1024, 4 * MIB
    budget = ReadBudget(16 * MIB, frame_bytes)
    left = {number: draw.randrange(1, frame_bytes) for number in range(50)}
    held = dict.fromkeys(left, 0)
    while left:
        progress = 0
        for number in draw.sample(list(left), len(left)):
            count = min(budget.room(number, read_bytes), left[number])
            progress += count
            left[number] -= count
            held[number] += count
            if not left[number]:
                del left[number]
                held[number] = 0
            budget.update(number, held[number], number in left)
            assert budget.held_bytes == sum(held.values()) <= budget.limit_bytes + read_bytes
        assert progress
