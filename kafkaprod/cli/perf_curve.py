"""`kafkaprod perf --curve`: latency at given rates, as an open loop.

Records are due at fixed times, whatever happened to those before, and the latency of a record counts from the moment it
was due. A stall of client or broker therefore shows in the latency of every record that it delayed; a loop that sends
the next record when it gets around to it would hide that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkaprod.cli.perf_stats import Stats, Totals
from kafkaprod.errors import ConfigError
from kafkaprod.producer import Producer
from kafkaprod.results.block import BlockResult

RATES: Final = "1000,3000,10000,30000,100000,300000"
SECONDS: Final = 5.0
KEPT_UP: Final = 0.95
"""A rate of which less than this share is reached is saturated: its latency is the length of a queue."""

_SLICE_S = 0.0001  # records that were due within this time are sent together, and count from the first one's time
_LATE_SHARE = 0.1  # a sender that is late sends more together: what was due within this share of its delay
_WARM_UP = 0.2  # share of the time at the beginning that is not counted
HEAD: Final = (
    f"{'target/s':>10} {'reached/s':>10} {'MB/s':>8} {'p50 ms':>9} {'p99 ms':>9} {'p99.9 ms':>9} {'max ms':>9}"
)

MakeBlock = Callable[[int, int], list[bytes]]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What was measured at one rate.

    Attributes:
        target: Records a second that were due.
        totals: The totals of the records that were sent after the warm-up.
    """

    target: int
    totals: Totals

    @property
    def is_saturated(self) -> bool:
        """Whether fewer records were acknowledged in the time than were due in it."""
        return self.totals.records_per_second < self.target * KEPT_UP

    def line(self) -> str:
        """Return a line of the table under `HEAD`; MB of 2**20 bytes, as in all lines of the command."""
        totals = self.totals
        p50, _, p99, p999 = totals.percentiles_ms
        numbers = f"{totals.records_per_second:>10,.0f} {totals.bytes_per_second / (1 << 20):>8.1f}"
        latency = f"{p50:>9.2f} {p99:>9.2f} {p999:>9.2f} {totals.highest_ms:>9.2f}"
        return f"{self.target:>10,} {numbers} {latency}{'  saturated' if self.is_saturated else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return the point for --json."""
        return {"target_records_per_second": self.target, "saturated": self.is_saturated} | self.totals.as_dict()


def measure_rates(
    producer: Producer, topic: str, rates: Sequence[int], seconds: float, make_block: MakeBlock
) -> Iterator[CurvePoint]:
    """Measure one rate after the other; the first saturated one is the last.

    Args:
        producer: Sends the records; is flushed after each rate.
        topic: Its name.
        rates: Records a second, ascending.
        seconds: How long records are due at each rate; the first fifth is not counted.
        make_block: Makes the values of `count` records from number `first` on.

    Raises:
        KafkaError: A record was not delivered.
    """
    producer.send_many(topic, make_block(0, 1)).result()  # connects
    for rate in rates:
        point = CurvePoint(rate, _run(producer, topic, rate, seconds, make_block))
        yield point
        if point.is_saturated:
            return


def _run(producer: Producer, topic: str, rate: int, seconds: float, make_block: MakeBlock) -> Totals:
    """Send what is due; stop early when sending itself takes twice the time."""
    record_count = max(int(rate * seconds), 1)
    started_s = time.monotonic()
    stats: Stats | None = None
    sent = 0
    while sent < record_count and time.monotonic() - started_s < 2 * seconds:
        due_s = started_s + sent / rate
        ahead_s = due_s - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
        if stats is None and time.monotonic() - started_s >= seconds * _WARM_UP:
            stats = Stats(float("inf"), lambda _: None)
        slice_s = max(_SLICE_S, -ahead_s * _LATE_SHARE)
        block = make_block(sent, min(max(int(rate * slice_s), 1), record_count - sent))
        result = producer.send_many(topic, block)
        if stats is not None:
            _watch(result, block, due_s, stats)
        sent += len(block)
    producer.flush()
    return (stats or Stats(float("inf"), lambda _: None)).totals()


def _watch(result: BlockResult, block: Sequence[bytes], due_s: float, stats: Stats) -> None:
    """Record each batch of the block when it is acknowledged, counted from when its first record was due."""
    average = sum(map(len, block)) / len(block)

    def on_done(count: int) -> None:
        stats.record(time.monotonic() - due_s, count, int(count * average))

    result.watch_batches(on_done)


def charts() -> Any:
    """Import what draws. Raises ConfigError: it is not installed."""
    try:
        from matplotlib.figure import Figure  # only here: it takes half a second
    except ImportError as error:
        raise ConfigError("--svg draws with matplotlib: pip install 'kafkaprod[charts]'") from error
    return Figure


def draw(points: Sequence[CurvePoint], title: str, path: str) -> None:
    """Write the points as SVG: the rate to the right, the latency upwards, both logarithmic.

    Raises:
        ConfigError: Matplotlib is missing.
        OSError: The file cannot be written.
    """
    figure = charts()(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", title=title)
    axes.set(xlabel="records a second", ylabel="latency from the due time, ms")
    rates = [point.totals.records_per_second for point in points]
    for number, name in ((3, "p99.9"), (2, "p99"), (0, "p50")):
        heights = [max(point.totals.percentiles_ms[number], 0.001) for point in points]
        axes.plot(rates, heights, marker="o", label=name)
    for point, rate in zip(points, rates, strict=True):
        if point.is_saturated:
            axes.axvline(rate, color="grey", linestyle=":", label=f"saturated: {point.target:,} were due")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter("{x:,g}")
    axes.grid(visible=True, which="major", alpha=0.4)
    axes.legend()
    figure.savefig(path, format="svg")
