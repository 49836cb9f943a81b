"""stats_cb and error_cb: made of the producer's metrics when poll() is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafkaprod import Producer
from kafkaprod.clock import monotonic_s
from kafkaprod.compat.confluent_kafka.codes import CODES
from kafkaprod.compat.confluent_kafka.error import KafkaError
from kafkaprod.compat.confluent_kafka.options import Settings
from kafkaprod.compat.confluent_kafka.reports import Events
from kafkaprod.compat.confluent_kafka.statistics import Statistics

LOOK_S: Final = 0.1  # how often at most error_cb's cause is looked for


class Observer:
    """Adds events for stats_cb and error_cb.

    Args:
        producer: Whose metrics are read.
        settings: The callbacks.
        events: Where the events go.
        statistics: Makes the texts for stats_cb; None: none are wanted.
    """

    def __init__(self, producer: Producer, settings: Settings, events: Events, statistics: Statistics | None) -> None:
        self._producer = producer
        self._settings = settings
        self._events = events
        self._statistics = statistics
        self._next_look = monotonic_s()
        self._next_statistics = self._next_look + settings.stats_interval_ms / 1000
        self._closed_before: float | None = None  # connections that had ended when first none was left

    @property
    def has_work(self) -> bool:
        """Whether a callback is configured that `look` serves."""
        return self._settings.error_cb is not None or self._statistics is not None

    def patience_s(self, timeout_s: float) -> float:
        """Return how long poll() may wait before it must look again."""
        return min(timeout_s, LOOK_S) if self.has_work else timeout_s

    def look(self) -> None:
        """Add what is due."""
        now = monotonic_s()
        if self._statistics is not None and now >= self._next_statistics:
            self._next_statistics = now + self._settings.stats_interval_ms / 1000
            self._add(self._settings.stats_cb, self._statistics.text())
        if self._settings.error_cb is not None and now >= self._next_look:
            self._next_look = now + LOOK_S
            self._look_for_errors()

    def _add(self, callback: Callable[..., object] | None, argument: Any) -> None:
        assert callback is not None
        self._events.add(lambda: callback(argument))

    def _look_for_errors(self) -> None:
        """Report that all connections are gone when one more has failed meanwhile, and again with each further one.

        The end of the last connection alone is no error: that to the bootstrap server ends before the first one to a
        broker is open, and idle ones are closed.
        """
        metrics = self._producer.metrics()["producer-metrics"]
        closed = float(metrics.get("connection-close-total", 0))
        if metrics.get("connection-count", 0) or not closed:
            self._closed_before = None
            return
        if self._closed_before is not None and closed > self._closed_before:
            text = "all broker connections are down; the log of kafkaprod has the reasons"
            self._add(self._settings.error_cb, KafkaError(CODES["_ALL_BROKERS_DOWN"], text))
        self._closed_before = closed
