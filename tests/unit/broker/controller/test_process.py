"""The controller's process: what it does in one turn of its loop."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from kafkaprod.broker.controller.process import ControllerConfig, ControllerProcess
from kafkaprod.broker.controller.wire import supported_features
from kafkaprod.broker.metadata.records import ConfigRecord
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
    option = AlterableConfig(name="consumer.session.timeout.ms", value="45000")
    groups = [
        AlterConfigsResource(resource_type=32, resource_name=str(number), configs=[option]) for number in range(5)
    ]
    process._on_request(IncrementalAlterConfigsRequest(resources=groups), lambda _: None)
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
    registration = BrokerRegistrationRequest(
        broker_id=1, incarnation_id=uuid.UUID(int=1), cluster_id="c" * 22, features=supported_features()
    )
    process._on_request(registration, lambda _: None)
    process._turn()
    return process


def beat_of(process: ControllerProcess) -> BrokerHeartbeatRequest:
    """What broker 1 sends."""
    image = process.controller.context.image
    return BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=image.brokers[1].epoch, current_metadata_offset=image.end_offset
    )


def test_a_pause_that_begins_before_a_session_would_end_fences_no_broker(tmp_path: Path) -> None:
    """The pause counts from the last turn: when it began, and who was silent meanwhile, is not known."""
    clock = ManualClock()
    process = with_a_broker(tmp_path, clock)
    image = process.controller.context.image
    process._on_request(beat_of(process), lambda _: None)
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
    process._on_request(beat_of(process), lambda _: None)
    process._turn()
    polls = []

    class Connection:
        """Has a heartbeat."""

        def on_ready(self, _: int) -> None:
            process.controller.note_heartbeat(beat_of(process), clock.now_ms())

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
