"""The metrics of each kind of sums in `sums`, by Kafka's names.

Source: Kafka's SenderMetricsRegistry, Selector, KafkaProducerMetrics, BufferPool, RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kafkaprod.metrics.sums import CallerSample, NodeSample, ProducerSample, TopicSample
from kafkaprod.metrics.windows import SampleRing

Values: TypeAlias = dict[str, float]


def _average(total: float, count: float) -> float:
    return total / count if count else 0.0


def _rates_and_totals(names: Mapping[str, tuple[float, float]], seconds: float) -> Values:
    """Return `<name>-rate` per second and `<name>-total`, from (recent, ever)."""
    values: Values = {}
    for name, (recent, ever) in names.items():
        values[f"{name}-rate"] = recent / seconds
        values[f"{name}-total"] = ever
    return values


def producer_values(ring: SampleRing[ProducerSample], now_ms: int) -> Values:
    """Return the metrics of a `ProducerSample`."""
    recent, seconds = ring.recent(now_ms)
    ever = ring.total()
    return {
        "batch-size-avg": _average(recent.batch_bytes, recent.batches),
        "batch-size-max": recent.batch_bytes_max,
        "compression-rate-avg": _average(recent.batch_bytes, recent.uncompressed_bytes),
        "record-queue-time-avg": _average(recent.queue_ms, recent.batches),
        "record-queue-time-max": recent.queue_ms_max,
        "request-latency-avg": _average(recent.latency_ms, recent.responses),
        "request-latency-max": recent.latency_ms_max,
        "records-per-request-avg": _average(recent.records, recent.requests),
        "record-size-avg": _average(recent.uncompressed_bytes, recent.records),
        "record-size-max": recent.record_bytes_max,
        "produce-throttle-time-avg": _average(recent.throttle_ms, recent.responses),
        "produce-throttle-time-max": recent.throttle_ms_max,
        "io-wait-time-ns-avg": _average(recent.wait_ns, recent.polls),
        "io-wait-time-ns-total": ever.wait_ns,
        "io-wait-ratio": recent.wait_ns / 1e9 / seconds,
        "io-time-ns-avg": _average(recent.work_ns, recent.polls),
        "io-time-ns-total": ever.work_ns,
        "io-ratio": recent.work_ns / 1e9 / seconds,
        **_rates_and_totals(
            {
                "record-send": (recent.records, ever.records),
                "record-retry": (recent.retried_records, ever.retried_records),
                "record-error": (recent.failed_records, ever.failed_records),
                "batch-split": (recent.splits, ever.splits),
                "select": (recent.polls, ever.polls),
            },
            seconds,
        ),
    }


def topic_values(ring: SampleRing[TopicSample], now_ms: int) -> Values:
    """Return the metrics of a `TopicSample`."""
    recent, seconds = ring.recent(now_ms)
    ever = ring.total()
    return {
        "compression-rate": _average(recent.batch_bytes, recent.uncompressed_bytes),
        **_rates_and_totals(
            {
                "record-send": (recent.records, ever.records),
                "byte": (recent.batch_bytes, ever.batch_bytes),
                "record-retry": (recent.retried_records, ever.retried_records),
                "record-error": (recent.failed_records, ever.failed_records),
            },
            seconds,
        ),
    }


def node_values(ring: SampleRing[NodeSample], now_ms: int) -> Values:
    """Return the metrics of a `NodeSample` in the group of a broker."""
    recent, seconds = ring.recent(now_ms)
    ever = ring.total()
    return {
        "request-size-avg": _average(recent.request_bytes, recent.produce_requests),
        "request-size-max": recent.request_bytes_max,
        "request-latency-avg": _average(recent.latency_ms, recent.produce_responses),
        "request-latency-max": recent.latency_ms_max,
        **_traffic(recent, ever, seconds),
    }


def connection_values(ring: SampleRing[NodeSample], now_ms: int) -> Values:
    """Return the metrics of a `NodeSample` of all brokers, in the group of the producer."""
    recent, seconds = ring.recent(now_ms)
    ever = ring.total()
    return {
        "request-size-avg": _average(recent.request_bytes, recent.produce_requests),
        "request-size-max": recent.request_bytes_max,
        "connection-count": ever.connections_created - ever.connections_closed,
        **_traffic(recent, ever, seconds),
        **_rates_and_totals(
            {
                "network-io": (
                    recent.requests_sent + recent.responses_received,
                    ever.requests_sent + ever.responses_received,
                ),
                "connection-creation": (recent.connections_created, ever.connections_created),
                "connection-close": (recent.connections_closed, ever.connections_closed),
                "successful-authentication": (recent.authentications_succeeded, ever.authentications_succeeded),
                "failed-authentication": (recent.authentications_failed, ever.authentications_failed),
                "successful-reauthentication": (recent.reauthentications_succeeded, ever.reauthentications_succeeded),
                "failed-reauthentication": (recent.reauthentications_failed, ever.reauthentications_failed),
            },
            seconds,
        ),
        "reauthentication-latency-avg": _average(recent.reauthentication_ms, recent.reauthentications_succeeded),
        "reauthentication-latency-max": recent.reauthentication_ms_max,
    }


def _traffic(recent: NodeSample, ever: NodeSample, seconds: float) -> Values:
    return _rates_and_totals(
        {
            "request": (recent.requests_sent, ever.requests_sent),
            "response": (recent.responses_received, ever.responses_received),
            "outgoing-byte": (recent.bytes_sent, ever.bytes_sent),
            "incoming-byte": (recent.bytes_received, ever.bytes_received),
        },
        seconds,
    )


def caller_values(ring: SampleRing[CallerSample], now_ms: int) -> Values:
    """Return the metrics of a `CallerSample`."""
    recent, seconds = ring.recent(now_ms)
    ever = ring.total()
    return {
        "bufferpool-wait-ratio": recent.memory_wait_ns / 1e9 / seconds,
        "bufferpool-wait-time-ns-total": ever.memory_wait_ns,
        **_rates_and_totals({"buffer-exhausted": (recent.refused_records, ever.refused_records)}, seconds),
    }
