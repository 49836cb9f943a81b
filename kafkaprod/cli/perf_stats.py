"""The numbers and lines of kafka-producer-perf-test. Source: org.apache.kafka.tools.ProducerPerformance.Stats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from kafkaprod.locks import locked
from kafkaprod.metrics import LatencyHistogram

MB = 1024.0 * 1024.0
SHARES = (0.5, 0.95, 0.99, 0.999)
# Copied from the Java class, without the line's end.
WINDOW_LINE = "%d records sent, %.1f records/sec (%.2f MB/sec), %.1f ms avg latency, %.1f ms max latency."
TOTAL_LINE = (
    "%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, "
    "%d ms 50th, %d ms 95th, %d ms 99th, %d ms 99.9th."
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums and latencies of a run.

    Attributes:
        records: Acknowledged.
        byte_count: The size of their values.
        seconds: The duration of the run.
        average_ms: The mean latency of all records.
        highest_ms: The highest latency.
        percentiles_ms: The latency's percentiles: 50th, 95th, 99th, 99.9th.
    """

    records: int
    byte_count: int
    seconds: float
    average_ms: float
    highest_ms: float
    percentiles_ms: tuple[float, float, float, float]

    @property
    def records_per_second(self) -> float:
        """Records by seconds."""
        return self.records / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Bytes by seconds."""
        return self.byte_count / self.seconds

    def line(self, *, is_steady_state: bool = False) -> str:
        """Return the last line of the Java tool."""
        return total_line(
            self.records,
            self.records_per_second,
            self.bytes_per_second / MB,
            self.average_ms,
            self.highest_ms,
            tuple(map(int, self.percentiles_ms)),
            is_steady_state=is_steady_state,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the totals for --json: the names that `load --json` has, too."""
        latency = {f"p{share * 100:g}": round(ms, 3) for share, ms in zip(SHARES, self.percentiles_ms, strict=True)}
        latency |= {"mean": round(self.average_ms, 3), "max": round(self.highest_ms, 3)}
        return {
            "records": self.records,
            "bytes": self.byte_count,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
            "latency_ms": latency if self.records else {},
        }


def total_line(
    records: int,
    records_per_second: float,
    mb_per_second: float,
    average_ms: float,
    highest_ms: float,
    percentiles_ms: tuple[int, ...],
    *,
    is_steady_state: bool = False,
) -> str:
    """Return the Java tool's line for these numbers; MB of 2**20 bytes."""
    return TOTAL_LINE % (
        records,
        " steady state" if is_steady_state else "",
        half_up(records_per_second, 6),
        half_up(mb_per_second, 2),
        half_up(average_ms, 2),
        half_up(highest_ms, 2),
        *percentiles_ms,
    )


def half_up(number: float, digits: int) -> float:
    """Round as Java's formatter does: the shortest decimal form of the number, halves away from zero."""
    return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


class Stats:
    """Counts records as they are acknowledged, and prints a line per window. `record` is thread-safe.

    Args:
        interval_s: Length of a window.
        show: Prints a line.
        clock: Monotonic seconds.
    """

    def __init__(
        self, interval_s: float, show: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._show = show
        self._clock = clock
        self._lock = threading.RLock()
        # guarded by _lock:
        self._started_s = self._window_s = clock()
        self._all = LatencyHistogram()
        self._window = LatencyHistogram()
        self._bytes = self._window_bytes = 0

    @locked
    def record(self, latency_s: float, count: int, byte_count: int) -> None:
        """Count records that were acknowledged after `latency_s`."""
        latency_us = int(latency_s * 1e6)
        self._all.record(latency_us, count)
        self._window.record(latency_us, count)
        self._bytes += byte_count
        self._window_bytes += byte_count
        now_s = self._clock()
        if now_s - self._window_s >= self._interval_s:
            self._show(self._window_line(now_s))
            self._window, self._window_bytes, self._window_s = LatencyHistogram(), 0, now_s

    def _window_line(self, now_s: float) -> str:
        seconds = now_s - self._window_s
        window = self._window
        return WINDOW_LINE % (
            window.count,
            half_up(window.count / seconds, 1),
            half_up(self._window_bytes / MB / seconds, 2),
            half_up(window.mean / 1000, 1),
            half_up(window.highest / 1000, 1),
        )

    @locked
    def totals(self) -> Totals:
        """Return the totals so far."""
        seconds = max(self._clock() - self._started_s, 1e-9)
        p50, p95, p99, p999 = (value / 1000 for value in self._all.percentiles(SHARES))
        return Totals(
            self._all.count,
            self._bytes,
            seconds,
            self._all.mean / 1000,
            self._all.highest / 1000,
            (p50, p95, p99, p999),
        )
