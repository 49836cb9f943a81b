"""What the simulated network delivers, and to which life of a process."""

from __future__ import annotations

import pytest

from tests.simulation.world import Process, World


def _started(world: World, name: str) -> Process:
    process = world.process(name)
    process.is_up, process.lives = True, process.lives + 1
    return process


@pytest.mark.parametrize(("restarts", "expected"), [(False, ["asked", "answered"]), (True, ["asked"])])
def test_answer_is_for_the_life_that_asked(restarts: bool, expected: list[str]) -> None:
    world = World(1)
    asking, answering = _started(world, "a"), _started(world, "b")
    happened: list[str] = []
    life = asking.lives

    def ask() -> None:
        happened.append("asked")
        if restarts:
            _started(world, "a")
        world.send(answering, asking, lambda: happened.append("answered"), life)

    world.send(asking, answering, ask)
    world.run_until(100, lambda: None, 1000)
    assert happened == expected


def test_message_to_a_process_that_ended_is_lost() -> None:
    world = World(1)
    sending, receiving = _started(world, "a"), _started(world, "b")
    happened: list[str] = []
    world.send(sending, receiving, lambda: happened.append("received"))
    _started(world, "b")
    world.run_until(100, lambda: None, 1000)
    assert happened == []
