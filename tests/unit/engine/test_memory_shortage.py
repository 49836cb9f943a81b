"""A passing shortage of memory in the sender thread costs a turn; a lasting one ends it with every record failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkaprod.engine.delivery_rules import BatchVerdict
from kafkaprod.engine.loop import MAX_FAILED_TURNS
from kafkaprod.errors import ConnectionLostError, ProducerClosedError
from tests.support.producer.sender_rig import TOPIC, Rig


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def failing(call: Callable[..., Any], times: int = 1, *, afterwards: bool = False) -> Callable[..., Any]:
    """The call, out of memory `times` times, before or after it did its work."""
    left = [times]

    def run(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            if afterwards:
                call(*args, **options)
            raise MemoryError
        return call(*args, **options)

    return run


def run_until_delivered(rig: Rig) -> None:
    """Run the loop; every request is answered in the next turn."""
    poll = rig.pool.poll

    def answering(timeout_ms: float) -> Any:
        for sent in rig.produce_requests:
            rig.answer(sent)
        rig.clock.advance(200)
        return poll(timeout_ms)

    rig.pool.poll = answering  # type: ignore[method-assign]
    rig.sender.close(rig.clock.now_ms() + 60_000)
    rig.sender.run()


@pytest.mark.parametrize(
    ("name", "afterwards"),
    [("poll", False), *((name, is_after) for name in ("send_body", "is_ready", "api_version") for is_after in (0, 1))],
)
def test_shortage_in_the_network_costs_a_turn(name: str, afterwards: bool) -> None:
    rig = Rig()
    future = rig.send()

    def lose(node_id: int, error: Any) -> None:
        for sent in rig.produce_requests:
            rig.complete(sent, error=error)

    rig.pool.disconnect = lose  # type: ignore[method-assign]
    setattr(rig.pool, name, failing(getattr(rig.pool, name), afterwards=afterwards))
    run_until_delivered(rig)
    assert future.succeeded()
    assert rig.sender.fatal_error is None
    assert rig.accumulator.pool.in_use == 0


def test_shortage_while_an_answer_is_settled_costs_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkaprod.engine import answers

    monkeypatch.setattr(answers, "settle_all", failing(answers.settle_all, 3))
    rig = Rig()
    future = rig.send()
    run_until_delivered(rig)
    assert future.succeeded()
    assert rig.accumulator.pool.in_use == 0


def test_shortage_that_lasts_ends_the_producer_with_its_cause(naps: list[float]) -> None:
    rig = Rig()
    future = rig.send()
    rig.pool.poll = failing(rig.pool.poll, 1000)  # type: ignore[method-assign]
    rig.sender.run()
    assert isinstance(rig.sender.fatal_error, MemoryError)
    assert isinstance(future.exception(0), ProducerClosedError)
    assert rig.accumulator.pool.in_use == 0
    assert len(naps) == MAX_FAILED_TURNS
    assert 0.5 < sum(naps) < 5


def test_shortage_between_two_batches_of_a_lost_answer_settles_each_once() -> None:
    rig = Rig(topics={TOPIC: (1, 1)})
    futures = [rig.send(partition=0), rig.send(partition=1)]
    rig.turn()
    acts = rig.sender._answers._acts
    acts[BatchVerdict.RETRY] = failing(acts[BatchVerdict.RETRY], afterwards=True)
    rig.complete(rig.produce_requests[0], error=ConnectionLostError("cut"))
    run_until_delivered(rig)
    assert all(future.succeeded() for future in futures)
    assert rig.sender.fatal_error is None
    assert rig.accumulator.pool.in_use == 0
