"""The controller's process: what it does in one turn of its loop."""

from __future__ import annotations

from pathlib import Path

from kafkaprod.broker.controller.events import AlterConfig
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
