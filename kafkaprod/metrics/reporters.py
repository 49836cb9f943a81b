"""Reporters of metrics: the protocol of `metric_reporters`, and a reporter that writes to the log."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from typing import Protocol

from kafkaprod.metrics.histogram import LatencyHistogram
from kafkaprod.metrics.producer_metrics import Snapshot, Stage
from kafkaprod.threads import apart, importing, make_thread


class MetricsSource(Protocol):
    """The metrics that a reporter reads. Thread-safe."""

    @property
    def client_id(self) -> str:
        """The producer's name."""
        ...

    @property
    def histograms(self) -> Mapping[Stage, LatencyHistogram]:
        """Latencies per stage, in us, since the start."""
        ...

    def snapshot(self) -> Snapshot:
        """Return all metrics now, as {group: {name: value}}."""
        ...


class Reporter(Protocol):
    """Sends the metrics of a producer to some place."""

    def start(self, source: MetricsSource) -> None:
        """Begin to report on a new producer. Must not block."""
        ...

    def close(self) -> None:
        """End: the producer was closed; its last values can still be read."""
        ...


@importing
def _json_dumps() -> Callable[..., str]:
    from json import dumps  # few producers have a reporter

    return dumps


class LogReporter:
    """Writes metrics as one line of JSON to the logger `kafkaprod.metrics`, at an interval and at the end.

    Args:
        interval_s: Time between lines.
        groups: Write the groups whose names start with one of these.
        level: The level of the log lines.
    """

    def __init__(
        self, interval_s: float = 60.0, groups: tuple[str, ...] = ("producer-metrics",), level: int = logging.INFO
    ) -> None:
        self._dumps = _json_dumps()
        self._interval_s = interval_s
        self._groups = groups
        self._level = level
        self._log = logging.getLogger("kafkaprod.metrics")
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item ends one thread
        self._source: MetricsSource | None = None

    def start(self, source: MetricsSource) -> None:
        """Begin to write, in a separate thread."""
        self._source = source
        apart(make_thread(self._run, f"kafkaprod-metrics-{source.client_id}").start)

    def close(self) -> None:
        """Write a last line."""
        self._ended.put(None)
        self.write()

    def write(self) -> None:
        """Write one line now."""
        if self._source is not None:
            snapshot = self._source.snapshot()
            chosen = {group: values for group, values in snapshot.items() if group.startswith(self._groups)}
            self._log.log(self._level, "%s %s", self._source.client_id, self._dumps(chosen))

    def _run(self) -> None:
        while True:
            try:
                self._ended.get(timeout=self._interval_s)
            except queue.Empty:
                self.write()
            else:
                return
