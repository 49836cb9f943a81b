"""Metrics for Prometheus, through the library prometheus-client (extra `kafkaprod[metrics]`).

    Producer(..., metric_reporters=[PrometheusReporter()])      then serve the library's registry as usual

Values are read during a scrape; there is no work between scrapes. Names are Kafka's with underscores and the prefix
`kafka_producer_`; stages are histograms in seconds, `kafka_producer_batch_<stage>_seconds`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from kafkaprod.errors import ConfigError
from kafkaprod.locks import locked
from kafkaprod.metrics.histogram import LatencyHistogram
from kafkaprod.metrics.meanings import STAGE_MEANINGS, meaning
from kafkaprod.metrics.reporters import MetricsSource

try:
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ConfigError("Prometheus metrics need prometheus-client: pip install 'kafkaprod[metrics]'") from error

PREFIX: Final = "kafka_producer"
# Bounds of histogram buckets: 63 us, 127 us, 255 us ... 67 s, each the highest value of a bucket of LatencyHistogram.
BOUNDS_US: Final = [(1 << bits) - 1 for bits in range(6, 27)]

_GROUPS: Final = {"producer-metrics": None, "producer-topic-metrics": "topic", "producer-node-metrics": "node_id"}


class ProducerCollector:
    """The metrics of producers as Prometheus's metric families. Thread-safe."""

    def __init__(self, *sources: MetricsSource) -> None:
        self.sources = sources  # replaced, never changed

    def describe(self) -> list[Any]:
        """Return nothing: the registry then does not scrape to learn the names."""
        return []

    def collect(self) -> Iterator[Any]:
        """Return the metrics; the registry calls this for each scrape."""
        families: dict[str, Any] = {}
        for source in self.sources:
            for group, values in source.snapshot().items():
                _add_group(families, source.client_id, group, values)
            for stage, histogram in source.histograms.items():
                _add_histogram(families, source.client_id, stage, histogram)
        yield from families.values()


def _add_group(families: dict[str, Any], client_id: str, group: str, values: Mapping[str, Any]) -> None:
    kind, _, subject = group.partition(".")
    if kind not in _GROUPS:
        return
    label = _GROUPS[kind]
    labels = {"client_id": client_id} if label is None else {"client_id": client_id, label: subject}
    prefix = PREFIX if label is None else f"{PREFIX}_{label.removesuffix('_id')}"
    for name, value in values.items():
        family_name = f"{prefix}_{name.replace('-', '_')}"
        if family_name not in families:
            make = CounterMetricFamily if name.endswith("-total") else GaugeMetricFamily
            families[family_name] = make(family_name, _help(name), labels=list(labels))
        families[family_name].add_metric(list(labels.values()), value)


def _help(name: str) -> str:
    try:
        return meaning(name).replace("`", "")
    except KeyError:  # of another source than a producer
        return f"the metric {name}"


def _add_histogram(families: dict[str, Any], client_id: str, stage: str, histogram: LatencyHistogram) -> None:
    name = f"{PREFIX}_batch_{stage}_seconds"
    if name not in families:
        families[name] = HistogramMetricFamily(
            name, f"Seconds of a batch: {STAGE_MEANINGS[stage]}", labels=["client_id"]
        )
    buckets = [
        (repr(bound / 1e6), count) for bound, count in zip(BOUNDS_US, histogram.counts_up_to(BOUNDS_US), strict=True)
    ]
    families[name].add_metric([client_id], [*buckets, ("+Inf", histogram.count)], histogram.total / 1e6)


class PrometheusReporter:
    """Registers the metrics of producers until they are closed. One reporter may serve several producers.

    Args:
        registry: The library's default registry, or another.
    """

    # One collector per registry: a metric family may appear only once in a scrape, whatever the number of producers.
    _lock = threading.RLock()
    _collectors: ClassVar[WeakKeyDictionary[Any, ProducerCollector]] = WeakKeyDictionary()  # guarded by _lock

    def __init__(self, registry: Any = REGISTRY) -> None:
        self._registry = registry
        self._sources: list[MetricsSource] = []

    @locked
    def start(self, source: MetricsSource) -> None:
        """Register a producer's metrics."""
        self._sources.append(source)
        collector = self._collectors.get(self._registry)
        if collector is None:
            collector = self._collectors[self._registry] = ProducerCollector()
            self._registry.register(collector)
        collector.sources = (*collector.sources, source)

    @locked
    def close(self) -> None:
        """Unregister them."""
        collector = self._collectors.get(self._registry)
        if collector is not None:
            collector.sources = tuple(each for each in collector.sources if each not in self._sources)
            if not collector.sources:
                self._registry.unregister(self._collectors.pop(self._registry))
        self._sources.clear()


def exposition(*sources: MetricsSource) -> bytes:
    """Return the metrics of producers in Prometheus's text format, in UTF-8."""
    registry = CollectorRegistry()
    registry.register(ProducerCollector(*sources))
    return bytes(generate_latest(registry))
