"""An unexpected error in a turn of the sender thread costs what it touches: every record still has its outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkaprod.engine import answers
from kafkaprod.engine.loop import MAX_FAILED_TURNS
from kafkaprod.errors import BootstrapError, KafkaError, ProducerClosedError
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from tests.support.producer.sender_rig import TOPIC, Rig, failure


class PlantedError(Exception):
    """Stands for an error that nobody thought of."""


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def failing(call: Callable[..., Any], times: int = 1, *, afterwards: bool = False) -> Callable[..., Any]:
    """The call, which raises `times` times, before or after it has done its work."""
    left = [times]

    def run(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            if afterwards:
                call(*args, **options)
            raise PlantedError
        return call(*args, **options)

    return run


def run_until_delivered(rig: Rig) -> None:
    """Run the loop to its end; every request is answered in the next turn, and a cut connection ends its requests."""
    poll = rig.pool.poll

    def answering(timeout_ms: float) -> Any:
        for sent in list(rig.pool.open):
            if sent.request is None:
                rig.answer(sent)
            elif isinstance(sent.request, MetadataRequest):
                rig.complete(sent, response=rig.metadata_response())
            elif isinstance(sent.request, InitProducerIdRequest):
                rig.answer_producer_id()
        rig.clock.advance(200)
        return poll(timeout_ms)

    def lose(node_id: int, error: Any) -> None:
        for sent in rig.produce_requests:
            rig.complete(sent, error=error)

    rig.pool.poll = answering  # type: ignore[method-assign]
    rig.pool.disconnect = lose  # type: ignore[method-assign]
    rig.sender.close(rig.clock.now_ms() + 60_000)
    rig.sender.run()


# Every call that a turn makes, by the object that the loop calls it on.
CALLS = [
    *(("_pool", name) for name in ("poll", "send_body", "is_ready", "api_version", "take_failures", "send")),
    *(("_upkeep", name) for name in ("refresh_metadata", "observe", "expire")),
    *(("_metadata", name) for name in ("next_refresh_ms", "make_request", "on_response")),
    *(("_metrics", name) for name in ("on_request", "on_response")),
    *(("_identity", name) for name in ("wanted", "delay_ms", "on_response", "may_drain", "on_sent")),
    *(("_answers", name) for name in ("expect", "_settle")),
]


@pytest.mark.parametrize(
    ("part", "name", "afterwards"),
    # What poll() has taken from its connections is with it alone: it cannot fail afterwards.
    [(*call, is_after) for call in CALLS for is_after in (False, True) if (*call, is_after) != ("_pool", "poll", True)],
)
def test_an_error_in_a_turn_ends_neither_the_thread_nor_a_record(part: str, name: str, afterwards: bool) -> None:
    rig = Rig(enable_idempotence=True)
    owner = getattr(rig.sender, part)
    future = rig.send()
    setattr(owner, name, failing(getattr(owner, name), afterwards=afterwards))
    rig.metadata.request_update()
    run_until_delivered(rig)
    assert rig.sender.fatal_error is None
    if name == "_settle" and not afterwards:
        error = future.exception(0)
        assert isinstance(error, KafkaError)
        assert error.possibly_persisted
    else:
        assert future.succeeded()
    assert rig.accumulator.pool.in_use == 0
    assert rig.accumulator.incomplete_batch_count == 0


def test_an_answer_that_cannot_be_handled_fails_its_records_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(topics={TOPIC: (1, 2)})
    rig.pool.ready.add(2)
    monkeypatch.setattr(answers, "settle_all", failing(answers.settle_all))
    lost, kept = rig.send(partition=0), rig.send(partition=1)
    with caplog.at_level(logging.ERROR):
        run_until_delivered(rig)
    assert [lost.succeeded(), kept.succeeded()].count(True) == 1
    failed = lost if lost.failed() else kept
    assert isinstance(failed.exception(0).__cause__, PlantedError)  # type: ignore[union-attr]
    assert "could not be handled" in caplog.text


def test_a_callback_of_a_request_that_raises_is_not_called_again() -> None:
    rig = Rig(topics={})
    calls = []
    rig.metadata.on_response = lambda *_: calls.append(1) or (1 / 0)  # type: ignore[method-assign, assignment, func-returns-value]
    rig.topics = {TOPIC: (1,)}
    rig.metadata.add_topic(TOPIC, rig.clock.now_ms())
    rig.turn()
    rig.answer_metadata()
    rig.turn()
    assert calls == [1]
    rig.turn(2_000)
    assert len(rig.open_of(MetadataRequest)) == 1  # requested again


def test_a_metadata_request_that_was_not_sent_is_made_again() -> None:
    rig = Rig(topics={})
    rig.pool.send = failing(rig.pool.send)  # type: ignore[method-assign]
    with pytest.raises(PlantedError):
        rig.turn()
    rig.turn(2_000)
    assert len(rig.open_of(MetadataRequest)) == 1


def test_an_error_that_lasts_ends_the_producer_with_its_cause(naps: list[float]) -> None:
    rig = Rig()
    future = rig.send()
    rig.pool.poll = failing(rig.pool.poll, 1000)  # type: ignore[method-assign]
    rig.sender.run()
    assert isinstance(rig.sender.fatal_error, PlantedError)
    assert isinstance(future.exception(0), ProducerClosedError)
    assert rig.accumulator.pool.in_use == 0
    assert len(naps) == MAX_FAILED_TURNS


def test_a_request_that_no_version_can_hold_fails_alone() -> None:
    rig = Rig(enable_idempotence=True, topics={})
    unsendable = []
    rig.sender._identity.on_unsendable = lambda wanted, error, now_ms: unsendable.append(error)  # type: ignore[method-assign]

    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("string of 40000 bytes exceeds the protocol's 32767")

    rig.metadata.next_refresh_ms = lambda now_ms: 10_000  # type: ignore[method-assign]
    rig.pool.send = refuse  # type: ignore[method-assign]
    rig.turn()
    assert "InitProducerIdRequest cannot be encoded: string of 40000 bytes" in str(unsendable[0])


def test_trouble_with_a_connection_is_told_although_telling_failed_once() -> None:
    rig = Rig(topics={})
    rig.pool.failures.append(failure(BootstrapError("no server")))
    rig.sender._upkeep.on_connection_failure = failing(rig.sender._upkeep.on_connection_failure)  # type: ignore[method-assign]
    rig.sender.close(rig.clock.now_ms())
    rig.sender.run()
    assert rig.sender.fatal_error is None
