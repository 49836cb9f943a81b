"""stats_cb and error_cb: made of the producer's metrics when poll() is called."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from kafkaprod import Producer
from kafkaprod.compat.confluent_kafka.codes import CODES
from kafkaprod.compat.confluent_kafka.error import KafkaError
from kafkaprod.compat.confluent_kafka.options import Settings
from kafkaprod.compat.confluent_kafka.reports import Events

LOOK_S: Final = 0.1  # how often at most error_cb's cause is looked for


class Observer:
    """Adds events for stats_cb and error_cb.

    Args:
        producer: Whose metrics are read.
        settings: The callbacks.
        events: Where the events go.
    """

    def __init__(self, producer: Producer, settings: Settings, events: Events) -> None:
        self._producer = producer
        self._settings = settings
        self._events = events
        self._started = self._next_look = time.monotonic()
        self._next_statistics = self._started + settings.stats_interval_ms / 1000
        self._closed_connections = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a callback is configured that `look` serves."""
        return self._settings.error_cb is not None or self._gives_statistics

    @property
    def _gives_statistics(self) -> bool:
        return self._settings.stats_cb is not None and self._settings.stats_interval_ms > 0

    def patience_s(self, timeout_s: float) -> float:
        """Return how long poll() may wait before it must look again."""
        return min(timeout_s, LOOK_S) if self.has_work else timeout_s

    def look(self) -> None:
        """Add what is due."""
        now = time.monotonic()
        if self._gives_statistics and now >= self._next_statistics:
            self._next_statistics = now + self._settings.stats_interval_ms / 1000
            self._add(self._settings.stats_cb, json.dumps(self._statistics(now)))
        if self._settings.error_cb is not None and now >= self._next_look:
            self._next_look = now + LOOK_S
            self._look_for_errors()

    def _add(self, callback: Callable[..., object] | None, argument: Any) -> None:
        assert callback is not None
        self._events.add(lambda: callback(argument))

    def _look_for_errors(self) -> None:
        """Report once that all connections are gone, each time more of them have ended without one that lives."""
        metrics = self._producer.metrics()["producer-metrics"]
        closed = float(metrics.get("connection-close-total", 0))
        if metrics.get("connection-count", 0) == 0 and closed > self._closed_connections:
            text = "all broker connections are down; the log of kafkaprod has the reasons"
            self._add(self._settings.error_cb, KafkaError(CODES["_ALL_BROKERS_DOWN"], text))
        self._closed_connections = closed

    def _statistics(self, now: float) -> dict[str, Any]:
        """Return the part of librdkafka's STATISTICS.md that this engine counts."""
        metrics = self._producer.metrics()["producer-metrics"]

        def value(name: str) -> int:
            number = metrics.get(name, 0)
            return int(number) if number == number and abs(number) != float("inf") else 0

        client_id = self._producer.config.client_id
        in_use = value("buffer-total-bytes") - value("buffer-available-bytes")
        return {
            "name": client_id,
            "client_id": client_id,
            "type": "producer",
            "ts": time.monotonic_ns() // 1000,
            "time": int(time.time()),
            "age": int((now - self._started) * 1e6),
            "replyq": 0,
            "msg_cnt": self._events.under_way,
            "msg_size": max(in_use, 0),
            "msg_max": self._settings.max_messages,
            "msg_size_max": value("buffer-total-bytes"),
            "tx": value("request-total"),
            "tx_bytes": value("outgoing-byte-total"),
            "rx": value("response-total"),
            "rx_bytes": value("incoming-byte-total"),
            "txmsgs": value("record-send-total"),
            "txmsg_bytes": value("outgoing-byte-total"),
            "brokers": {},
            "topics": {},
        }
