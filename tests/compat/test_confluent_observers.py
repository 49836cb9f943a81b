"""error_cb: no alarm while all is well, one when connections fail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from kafkaprod.compat.confluent_kafka import Producer, observers
from kafkaprod.compat.confluent_kafka.observers import Observer
from kafkaprod.compat.confluent_kafka.options import read
from kafkaprod.compat.confluent_kafka.reports import Events


class Connections:
    """A producer's metrics, one state after the other: open connections, and ended ones."""

    def __init__(self, states: Sequence[tuple[int, int]]) -> None:
        self._states = iter(states)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the next state."""
        open_ones, ended = next(self._states)
        return {"producer-metrics": {"connection-count": open_ones, "connection-close-total": ended}}


@pytest.mark.parametrize(
    ("states", "alarms"),
    [
        ([(0, 0), (1, 0), (0, 1), (0, 1), (1, 1)], 0),  # a start: bootstrap server, gap, broker
        ([(1, 1), (0, 2), (0, 2), (0, 2)], 0),  # idle connections are closed
        ([(0, 1), (1, 1), (0, 2), (1, 2)], 0),  # one of two bootstrap servers refuses
        ([(0, 1), (0, 2), (0, 2), (0, 3)], 2),  # nothing can be reached
        ([(2, 1), (0, 3), (0, 4), (1, 4), (0, 5), (0, 6)], 2),  # all is lost, comes back, is lost
    ],
)
def test_an_alarm_is_a_connection_that_fails_while_there_is_none(
    states: list[tuple[int, int]], alarms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "LOOK_S", 0)
    errors: list[Any] = []
    events = Events()
    producer: Any = Connections(states)
    observer = Observer(producer, read({"bootstrap.servers": "b:1", "error_cb": errors.append}), events, None)
    for _ in states:
        observer.look()
    events.serve(0)
    assert [error.name() for error in errors] == ["_ALL_BROKERS_DOWN"] * alarms


def test_a_healthy_start_calls_nothing(servers: str, topic: str) -> None:
    errors: list[Any] = []
    reports: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "error_cb": errors.append})
    producer.produce(topic, b"v", on_delivery=lambda *report: reports.append(report))
    deadline = time.monotonic() + 20
    while not reports and time.monotonic() < deadline:
        producer.poll(0.01)
    producer.poll(2 * observers.LOOK_S)
    assert [error for error, _ in reports] == [None]
    assert errors == []
    producer.close()
