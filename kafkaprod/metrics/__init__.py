"""Metrics: Kafka's names, windows and totals, latency histograms, and where they are reported.

producer_metrics.py   what the sender and callers record, and the snapshot      samples.py      the names
recording.pyx         of that, what each request passes                         sums.pyx        the sums of a window
windows.pyx           rates, averages, maxima, totals over time                 histogram.pyx   percentiles
reporters.py          the reporter protocol, a log reporter                     prometheus.py   needs its own extra
"""

from kafkaprod.metrics.histogram import LatencyHistogram
from kafkaprod.metrics.producer_metrics import ProducerMetrics, Snapshot, Stage, Timer
from kafkaprod.metrics.reporters import LogReporter, MetricsSource, Reporter

__all__ = [
    "LatencyHistogram",
    "LogReporter",
    "MetricsSource",
    "ProducerMetrics",
    "Reporter",
    "Snapshot",
    "Stage",
    "Timer",
]
