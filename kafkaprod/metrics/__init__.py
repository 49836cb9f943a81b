"""Metrics: Kafka's names, windows and totals, latency histograms, and where they are reported.

producer_metrics.py   what the sender and callers record, and the snapshot      samples.py      the names
recording.pyx         of that, what each request passes                         sums.pyx        the sums of a window
windows.pyx           rates, averages, maxima, totals over time                 histogram.pyx   percentiles
reporters.py          the reporter protocol, a log reporter                     prometheus.py   needs its own extra

client_metrics    a producer's metrics as brokers request them (KIP-714): names with dots, prefixes, differences
otlp              metrics as bytes of OpenTelemetry's protocol
prometheus        metrics for Prometheus, through the library prometheus-client (extra `kafkaprod[metrics]`)
reporters         reporters of metrics: the protocol of `metric_reporters`, and a reporter that writes to the log
producer_metrics  Kafka's producer metrics, by name, in kafka-python's shape: {group: {name: value}}
meanings          what each metric means, for help texts and the documentation
recording         the part of `ProducerMetrics` that each produce request passes
histogram         latency histograms: log-linear buckets, one increment per value
samples           the metrics of each kind of sums in `sums`, by Kafka's names
sums              the sums of one window, by kind: for the whole producer, a topic, a broker, the callers' threads
windows           windowed statistics: recent values in a ring of samples, and totals
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
