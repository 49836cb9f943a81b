"""Reports of records with what they were: key, value, headers, and how long they took.

A `DeliveryFuture` keeps a record's place only, so that millions of them are cheap. A `ReportingProducer` keeps the
records themselves until their outcome is known, for those who want them back: to send again, to write aside, to time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kafkaprod._core.queues.completion import DeliveryFuture
from kafkaprod.clock import monotonic_s


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """A record and its outcome.

    Attributes:
        topic: Its name.
        partition: Where it is, or would have been.
        offset: Its place there; -1: it failed, or the broker did not say.
        timestamp_ms: The time of the record in the log, ms since the epoch; -1: it failed.
        key, value, headers: As they were given to `send`.
        latency_s: Seconds from the call of `send` to the outcome.
        error: Why it was not delivered; None: it was.
        opaque: What the caller gave with it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Any
    latency_s: float
    error: Exception | None
    opaque: Any


class _Producer(Protocol):
    """What a reporter needs of a `Producer`."""

    def send(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> DeliveryFuture:
        """Queue a record."""
        ...


class _AsyncProducer(Protocol):
    """What a reporter needs of an `AsyncProducer`."""

    async def send(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> DeliveryFuture:
        """Queue a record."""
        ...


class ReportingProducer:
    """Sends records, and calls a function with a `DeliveryReport` of each. Thread-safe.

    A reported failure counts as seen: `flush()` does not raise it again. What `send` raises has no report.

    Args:
        producer: Sends them.
        on_report: Called on the producer's own thread, which must not wait; if it raises, that is logged.
    """

    def __init__(self, producer: _Producer, on_report: Callable[[DeliveryReport], object]) -> None:
        self._producer = producer
        self._on_report = on_report

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        opaque: Any = None,
    ) -> DeliveryFuture:
        """Do as `Producer.send`; `opaque` comes back in the report."""
        started_s = monotonic_s()
        future = self._producer.send(topic, value, key, headers, partition, timestamp_ms)
        future.add_done_callback(partial(_report, self._on_report, key, value, headers, started_s, opaque))
        return future


class AsyncReportingProducer:
    """The same for an `AsyncProducer`; the function is called in the event loop that sent the record."""

    def __init__(self, producer: _AsyncProducer, on_report: Callable[[DeliveryReport], object]) -> None:
        self._producer = producer
        self._on_report = on_report

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        opaque: Any = None,
    ) -> DeliveryFuture:
        """Do as `AsyncProducer.send`; `opaque` comes back in the report."""
        started_s = monotonic_s()
        future = await self._producer.send(topic, value, key, headers, partition, timestamp_ms)
        future.add_done_callback(partial(_report, self._on_report, key, value, headers, started_s, opaque))
        return future


def _report(
    on_report: Callable[[DeliveryReport], object],
    key: Any,
    value: Any,
    headers: Any,
    started_s: float,
    opaque: Any,
    future: DeliveryFuture,
) -> None:
    """Call the function, now that the outcome is known."""
    latency_s = monotonic_s() - started_s
    error = future.exception(0)
    offset, timestamp_ms = -1, -1
    if error is None:
        metadata = future.result(0)
        offset, timestamp_ms = metadata.offset, metadata.timestamp
    on_report(
        DeliveryReport(
            future.topic, future.partition, offset, timestamp_ms, key, value, headers, latency_s, error, opaque
        )
    )
