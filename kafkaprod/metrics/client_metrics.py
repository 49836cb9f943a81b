"""A producer's metrics as brokers request them (KIP-714): names with dots, prefixes, differences.

    producer-metrics / record-send-total         org.apache.kafka.producer.record.send.total
    producer-topic-metrics.orders / byte-rate    org.apache.kafka.producer.topic.byte.rate     {topic: orders}
    producer-node-metrics.node-1 / ...           org.apache.kafka.producer.node...             {node_id: node-1}
    producer-latency-metrics / ack-time-us-p99   kafkaprod.producer.latency.ack.time.us.p99

Source: org.apache.kafka.common.telemetry.internals (KafkaMetricsCollector, TelemetryMetricNamingConvention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from kafkaprod.metrics.otlp import Metric, NumberDataPoint
from kafkaprod.metrics.producer_metrics import Snapshot

Key: TypeAlias = tuple[str, str]
"""A metric's name and what it is of."""

MetricTotals: TypeAlias = dict[Key, float]

_NODE_LATENCY: Final = "kafkaprod.producer.node.latency."

# Kind of group -> prefix of the names, and the attribute that its subject becomes.
_GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "producer-metrics": ("org.apache.kafka.producer.", ""),
    "producer-node-metrics": ("org.apache.kafka.producer.node.", "node_id"),
    "producer-topic-metrics": ("org.apache.kafka.producer.topic.", "topic"),
    "producer-latency-metrics": ("kafkaprod.producer.latency.", ""),
    "producer-node-latency-metrics": (_NODE_LATENCY, "node_id"),
}
DETAILS: Final = ("", _NODE_LATENCY, "org.apache.kafka.producer.topic.", "org.apache.kafka.producer.node.")
"""What is left out, step by step, of metrics that are too large for the broker."""


def is_requested(name: str, prefixes: Sequence[str]) -> bool:
    """Return whether a broker wants a metric; "*" and the empty prefix mean all."""
    return any(prefix == "*" or name.startswith(prefix) for prefix in prefixes)


def requested_metrics(snapshot: Snapshot, prefixes: Sequence[str]) -> list[Metric]:
    """Return the metrics that a broker requests, with totals since the producer's start."""
    metrics: dict[str, Metric] = {}
    for group, values in snapshot.items():
        kind, _, subject = group.partition(".")
        if kind not in _GROUPS:
            continue
        prefix, attribute = _GROUPS[kind]
        attributes = {attribute: subject} if attribute else {}
        for short_name, value in values.items():
            name = prefix + short_name.replace("-", ".")
            metric = metrics.get(name)
            if metric is None:
                if not is_requested(name, prefixes):
                    continue
                metric = metrics[name] = Metric(name, short_name.endswith("-total"), [])
            metric.points.append(NumberDataPoint(attributes, float(value)))
    return list(metrics.values())


def totals_of(metrics: Iterable[Metric]) -> MetricTotals:
    """Return the value of each total."""
    return {(metric.name, _subject(point)): point.value for metric, point in _points(metrics) if metric.is_total}


def since(metrics: Iterable[Metric], before: MetricTotals) -> list[Metric]:
    """Return the metrics with totals replaced by what they have grown since `before`."""
    return [
        Metric(
            name,
            is_total,
            [NumberDataPoint(p.attributes, p.value - before.get((name, _subject(p)), 0.0)) for p in points],
        )
        if is_total
        else Metric(name, is_total, points)
        for name, is_total, points in metrics
    ]


def fitting(metrics: list[Metric], limit: int, encode: Callable[[list[Metric]], bytes]) -> bytes | None:
    """Return encoded metrics of at most `limit` bytes; in the order of DETAILS some are left out.

    Returns:
        None if even the others exceed the limit.
    """
    for left_out in DETAILS:
        if left_out:
            metrics = [metric for metric in metrics if not metric.name.startswith(left_out)]
        data = encode(metrics)
        if len(data) <= limit:
            return data
    return None


def _points(metrics: Iterable[Metric]) -> Iterable[tuple[Metric, NumberDataPoint]]:
    return ((metric, point) for metric in metrics for point in metric.points)


def _subject(point: NumberDataPoint) -> str:
    return next(iter(point.attributes.values()), "")
