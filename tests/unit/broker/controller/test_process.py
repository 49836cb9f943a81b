"""The controller's process: what it does in one turn of its loop."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from kafkaprod.broker.controller.events import AlterConfig, Heartbeat, RegisterBroker
from kafkaprod.broker.controller.process import ControllerConfig, ControllerProcess
from kafkaprod.broker.metadata.records import ConfigRecord
from tests.support.clock import ManualClock


def test_a_turn_ends_in_time_though_events_are_left(tmp_path: Path) -> None:
    """Requests that come meanwhile, heartbeats among them, are read between two turns."""
    clock = ManualClock()
    (tmp_path / "s").mkdir()
    config = ControllerConfig(str(tmp_path / "s"), str(tmp_path / "d"), "c" * 22)
    process = ControllerProcess(config, clock)
    applied: list[str] = []
    apply = process.controller.context.image.apply

    def slow_apply(offset: int, record: object) -> object:
        clock.advance(20)
        if isinstance(record, ConfigRecord):
            applied.append(record.resource_name)
        return apply(offset, record)  # type: ignore[arg-type]

    process.controller.context.image.apply = slow_apply  # type: ignore[method-assign, assignment]
    for number in range(5):
        process.put(AlterConfig(32, str(number), "consumer.session.timeout.ms", "45000", lambda _: None))
    counts = []
    while len(process.controller.queue):
        process._turn()
        counts.append(len(applied))
    assert counts == [3, 5]
    assert applied == list("01234")
    process.stop()
    process.run()


def with_a_broker(path: Path, clock: ManualClock) -> ControllerProcess:
    """A process that has registered broker 1, whose sessions are of 500 ms."""
    (path / "s").mkdir()
    config = ControllerConfig(str(path / "s"), str(path / "d"), "c" * 22, session_timeout_ms=500)
    process = ControllerProcess(config, clock)
    process.put(RegisterBroker(1, uuid.UUID(int=1), "c" * 22))
    process._turn()
    return process


def test_a_pause_that_begins_before_a_session_would_end_fences_no_broker(tmp_path: Path) -> None:
    """The pause counts from the last turn: when it began, and who was silent meanwhile, is not known."""
    clock = ManualClock()
    process = with_a_broker(tmp_path, clock)
    image = process.controller.context.image
    process.put(Heartbeat(1, image.brokers[1].epoch, image.end_offset, False, False, clock.now_ms()))
    process._turn()
    assert not image.brokers[1].is_fenced
    poll = process._poller.poll

    def pause(timeout_ms: int) -> list[Any]:
        if timeout_ms:
            process._due_ms = clock.now_ms() + 500  # nothing is due before the session ends
            clock.advance(2_000)
        return []

    process._poller.poll = pause  # type: ignore[assignment, method-assign]
    process._timeout_ms = lambda: 500  # type: ignore[method-assign]
    process._turn()
    del process._timeout_ms  # type: ignore[method-assign]
    process._poller.poll = poll  # type: ignore[method-assign]
    assert not image.brokers[1].is_fenced, "its heartbeats wait"
    process.post(lambda: None)
    clock.advance(499)
    process._turn()
    process.post(lambda: None)
    clock.advance(2)
    process._turn()
    assert image.brokers[1].is_fenced, "none came"
    process.stop()
    process.run()


def test_what_came_while_the_controller_was_paused_is_read_before_a_session_ends(tmp_path: Path) -> None:
    """The signal that ends a pause makes `poll` return nothing, where its time is over."""
    clock = ManualClock()
    process = with_a_broker(tmp_path, clock)
    image = process.controller.context.image

    def beat() -> Heartbeat:
        return Heartbeat(1, image.brokers[1].epoch, image.end_offset, False, False, clock.now_ms())

    process.put(beat())
    process._turn()
    polls = []

    class Connection:
        """Has a heartbeat."""

        def on_ready(self, _: int) -> None:
            process.controller.note_heartbeat(beat())

    def poll(_: int) -> list[Any]:
        polls.append(clock.now_ms())
        if len(polls) == 1:
            process._due_ms = clock.now_ms() + 499
            clock.advance(600)
            return []
        return [(Connection(), 1)]

    before, process._poller.poll = process._poller.poll, poll  # type: ignore[assignment, method-assign]
    process._turn()
    process._poller.poll = before  # type: ignore[method-assign]
    assert not image.brokers[1].is_fenced
    process.stop()
    process.run()
