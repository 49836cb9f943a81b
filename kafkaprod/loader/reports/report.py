"""Report the counts and times of a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.remote.objects import RangeCounts
from kafkaprod.loader.reports.spread import Spread
from kafkaprod.metrics import LatencyHistogram, Stage
from kafkaprod.text import counted, printable

SHARES: Final = (0.5, 0.95, 0.99, 0.999)
_DAY_MS: Final = 24 * 60 * 60 * 1000
SCHEMA_VERSION: Final = 1  # of to_dict()


@dataclass(slots=True)
class LoadReport:
    """Counts and times one run of a load.

    Attributes:
        topic: The load's topic.
        sent_count: Records that this run brought into the topic.
        sent_bytes: Bytes of their keys, values and headers.
        passed_count: Records of the load that were in the topic when this run began.
        seconds: Wall-clock time of the run.
        latency_ms: Percentile -> time from sending a batch to its acknowledgement.
        retry_count: How often a record was sent again.
        is_complete: Whether nothing is left to load.
        bad_in_all: Rows left out or put aside in all runs of the load.
        sent_in_all: Records acknowledged in all runs of the load.
        has_keys: Whether a row had a key; None: no row was read.
        manifest: Path of the manifest; None: there is none.
        spread: How the records that this run brought are spread; None: they are not counted.
        retention_ms: How long the topic keeps records by their timestamps; None: for ever, or not known.
        oldest_ms: The least timestamp that a row brought; None: rows have the time of sending.
        remote: What was read of other machines; None: nothing.
    """

    topic: str
    sent_count: int = 0
    sent_bytes: int = 0
    passed_count: int = 0
    seconds: float = 0.0
    latency_ms: dict[str, float] = field(default_factory=dict)
    retry_count: int = 0
    is_complete: bool = False
    bad_in_all: int = 0
    sent_in_all: int = 0
    has_keys: bool | None = None
    manifest: str | None = None
    spread: Spread | None = None
    retention_ms: int | None = None
    oldest_ms: int | None = None
    remote: RangeCounts | None = None

    def note(self, block: RowBlock) -> None:
        """Note, of the rows that are sent, which have keys and how old the oldest is."""
        if not block.row_count:
            return
        self.has_keys = self.has_keys or block.has_keys()
        if block.timestamps is not None:
            oldest_ms = int(block.timestamps.min())
            self.oldest_ms = oldest_ms if self.oldest_ms is None else min(self.oldest_ms, oldest_ms)

    def expired(self, now_ms: int) -> str:
        """Return what to say of rows that the topic does not keep; empty where there is none."""
        if self.retention_ms is None or self.oldest_ms is None or self.oldest_ms >= now_ms - self.retention_ms:
            return ""
        oldest = np.datetime64(self.oldest_ms, "ms").astype("datetime64[s]")
        days = self.retention_ms / _DAY_MS
        return (
            f"the oldest timestamp is {oldest}, and topic {self.topic!r} keeps records for {days:,.3g} days by their "
            "timestamps (retention.ms): brokers may delete such rows within minutes. Raise retention.ms, and load them "
            "again"
        )

    def take(self, histograms: Mapping[Stage, LatencyHistogram], retry_count: int) -> None:
        """Keep the percentiles and the retries of a producer that is about to be closed."""
        self.retry_count += retry_count
        values = histograms["ack"].percentiles(SHARES)
        self.latency_ms = {f"p{share * 100:g}": value / 1000 for share, value in zip(SHARES, values, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """Return the summary of --json; the names are those of `perf --json`, too.

        Of a complete load records, already_there and bad_rows are together the rows of the input.
        """
        seconds = max(self.seconds, 1e-9)
        return {
            "schema_version": SCHEMA_VERSION,
            "topic": self.topic,
            "records": self.sent_count,
            "bytes": self.sent_bytes,
            "bad_rows": self.bad_in_all,
            "already_there": self.passed_count,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.sent_count / seconds, 1),
            "bytes_per_second": round(self.sent_bytes / seconds, 1),
            "latency_ms": {name: round(value, 3) for name, value in self.latency_ms.items()},
            "retries": self.retry_count,
            "complete": self.is_complete,
            "manifest": self.manifest,
            **({} if self.remote is None else {"remote": self.remote.to_dict()}),
            **({} if self.spread is None else self.spread.to_dict()),
        }

    def __str__(self) -> str:
        seconds = max(self.seconds, 1e-9)
        text = (
            f"{counted(self.sent_count, 'record')}, {self.sent_bytes / 1e6:,.1f} MB in {self.seconds:.2f} s: "
            f"{self.sent_count / seconds:,.0f} records/s, {self.sent_bytes / 1e6 / seconds:,.1f} MB/s"
        )
        if self.latency_ms:
            text += ", latency " + ", ".join(f"{name} {value:.1f} ms" for name, value in self.latency_ms.items())
        if self.retry_count:
            text += f"; {counted(self.retry_count, 'retry', 'retries')}"
        if self.remote is not None:
            text += f"; read {self.remote}"
        if self.passed_count:
            text += f"; {counted(self.passed_count, 'record')} already in the log"
        if self.bad_in_all:
            text += f"; {counted(self.bad_in_all, 'bad row')}"
        return text if self.manifest is None else f"{text}; manifest {printable(self.manifest)}"
