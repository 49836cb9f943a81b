"""The budget of unfinished requests: its bound holds, and every frame comes to its end."""

from __future__ import annotations

import random

import pytest

from kafkaprod.broker.server.read_budget import ReadBudget

MIB = 1 << 20


def test_all_may_read_while_there_is_room() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    budget.update("a", 20 * MIB, 20 * MIB)
    assert not budget.is_scarce
    assert budget.room("a", MIB) == budget.room("b", MIB) == MIB


def test_beyond_it_only_small_holders_and_the_oldest_read() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    budget.update("first", 13 * MIB, 13 * MIB)
    budget.update("second", 13 * MIB, 13 * MIB)
    budget.update("small", MIB // 2, MIB // 2)
    assert budget.room("first", MIB) == MIB
    assert budget.room("second", MIB) == 0
    share_bytes = (48 - 13.5) * MIB // 16
    assert budget.room("small", 2 * MIB) == share_bytes - MIB // 2
    assert budget.room("newcomer", 3 * MIB) == share_bytes
    budget.update("first", 0, 0)
    budget.update("other", 13 * MIB, 13 * MIB)
    assert budget.room("second", MIB) == MIB


def test_finished_requests_that_are_not_handled_count_too() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    for name in "abcd":
        budget.update(name, 16 * MIB, 0)
    budget.update("head", 15 * MIB, 15 * MIB)
    assert budget.room("head", MIB) == 0
    budget.update("a", 0, 0)
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
            budget.update(number, held[number], held[number])
            assert budget.held_bytes == sum(held.values()) <= budget.limit_bytes + read_bytes
        assert progress


def test_bound_holds_when_they_come_one_after_the_other() -> None:
    read_bytes, count = 512 * 1024, 1_000
    budget = ReadBudget(200 * MIB, 100 * MIB)
    for number in range(count):
        held_bytes = 0
        while held_bytes < 100 * MIB - 1 and (room := budget.room(number, read_bytes)):
            held_bytes += min(room, 100 * MIB - 1 - held_bytes)
            budget.update(number, held_bytes, held_bytes)
        if number == 40:
            assert budget.room("newcomer", MIB) >= 64 * 1024
    assert budget.room("newcomer", MIB) == 16 * 1024
    assert budget.held_bytes < 200 * MIB + read_bytes + count * 16 * 1024


def test_head_reads_on_beyond_the_limit_where_no_other_frame_will_be_handled() -> None:
    budget = ReadBudget(64 * MIB, 16 * MIB)
    budget.update("head", 1 * MIB, 1 * MIB)
    for number in range(4_000):
        budget.update(number, 16 * 1024, 16 * 1024)
    assert budget.held_bytes > 62 * MIB
    budget.update("head", 4 * MIB, 4 * MIB)
    assert budget.held_bytes > budget.limit_bytes
    assert budget.room("head", MIB) == MIB
    budget.update(0, 16 * 1024, 0)
    assert budget.room("head", MIB) == 0
