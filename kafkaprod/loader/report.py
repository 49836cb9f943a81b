"""What a load did, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkaprod.metrics import LatencyHistogram, Stage

SHARES = (0.5, 0.95, 0.99, 0.999)


@dataclass(slots=True)
class LoadReport:
    """Counts and times of one run of a load.

    Attributes:
        topic: Where to.
        sent_count: Records acknowledged in this run.
        sent_bytes: Of their keys, values and headers.
        bad_count: Rows left out or put aside in this run.
        passed_count: Rows that were in the log already.
        seconds: Of the run.
        latency_ms: Percentile -> time from sending a batch to its acknowledgement.
        retry_count: How often a record was sent again.
        is_complete: Whether nothing is left to load.
    """

    topic: str
    sent_count: int = 0
    sent_bytes: int = 0
    bad_count: int = 0
    passed_count: int = 0
    seconds: float = 0.0
    latency_ms: dict[str, float] = field(default_factory=dict)
    retry_count: int = 0
    is_complete: bool = False

    def take(self, histograms: Mapping[Stage, LatencyHistogram], retry_count: int) -> None:
        """Keep the percentiles and the retries of a producer that is about to be closed."""
        self.retry_count += retry_count
        values = histograms["ack"].percentiles(SHARES)
        self.latency_ms = {f"p{share * 100:g}": value / 1000 for share, value in zip(SHARES, values, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        seconds = max(self.seconds, 1e-9)
        return {
            "topic": self.topic,
            "records": self.sent_count,
            "bytes": self.sent_bytes,
            "bad_rows": self.bad_count,
            "already_there": self.passed_count,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.sent_count / seconds, 1),
            "mb_per_second": round(self.sent_bytes / 1e6 / seconds, 3),
            "latency_ms": self.latency_ms,
            "retries": self.retry_count,
            "complete": self.is_complete,
        }

    def __str__(self) -> str:
        seconds = max(self.seconds, 1e-9)
        text = (
            f"{self.sent_count:,} records, {self.sent_bytes / 1e6:,.1f} MB in {self.seconds:.2f} s: "
            f"{self.sent_count / seconds:,.0f} records/s, {self.sent_bytes / 1e6 / seconds:,.1f} MB/s"
        )
        if self.latency_ms:
            text += ", latency " + ", ".join(f"{name} {value:.1f} ms" for name, value in self.latency_ms.items())
        if self.retry_count:
            text += f"; {self.retry_count:,} retries"
        if self.passed_count:
            text += f"; {self.passed_count:,} were in the log already"
        if self.bad_count:
            text += f"; {self.bad_count:,} bad rows"
        return text
