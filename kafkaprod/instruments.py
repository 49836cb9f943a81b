"""What the producer counts, told by its parts; the metrics that people read are made of it."""

from __future__ import annotations

from typing import Any

from kafkaprod._core.accumulator import Accumulator
from kafkaprod._core.produce_request import ProduceRequest
from kafkaprod._core.settlement import BatchRef
from kafkaprod.net.pool import NodePool


class Instruments:
    """Counters of one producer. Written by the sender thread, but for the two waits; read by any."""

    def __init__(self) -> None:
        self.record_send_total = 0
        self.record_retry_total = 0
        self.record_error_total = 0
        self.batch_split_total = 0
        self.batch_total = 0
        self.request_total = 0
        self.request_bytes_total = 0
        self.response_total = 0
        self.request_latency_ms_total = 0
        self.request_latency_ms_max = 0
        self.throttle_ms_total = 0
        self.memory_wait_ns_total = 0
        self.flush_ns_total = 0

    def on_request(self, request: ProduceRequest, size_bytes: int, now_ms: int) -> None:
        """A produce request goes out."""
        self.request_total += 1
        self.request_bytes_total += size_bytes
        self.batch_total += len(request)
        self.record_send_total += request.record_count

    def on_response(self, request: ProduceRequest, latency_ms: int, now_ms: int) -> None:
        """It was answered."""
        self.response_total += 1
        self.request_latency_ms_total += latency_ms
        self.request_latency_ms_max = max(self.request_latency_ms_max, latency_ms)

    def on_retry(self, batch: BatchRef) -> None:
        """A batch will be sent again."""
        self.record_retry_total += batch.record_count

    def on_error(self, batch: BatchRef) -> None:
        """A batch failed."""
        self.record_error_total += batch.record_count

    def on_split(self) -> None:
        """A batch was split."""
        self.batch_split_total += 1

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """A broker asked to hold back."""
        self.throttle_ms_total += throttle_ms

    def on_memory_wait(self, wait_ns: int) -> None:
        """An application thread waited for memory."""
        self.memory_wait_ns_total += wait_ns

    def on_flush(self, wait_ns: int) -> None:
        """A flush ended."""
        self.flush_ns_total += wait_ns

    def snapshot(self, accumulator: Accumulator, nodes: NodePool) -> dict[str, dict[str, Any]]:
        """Kafka's names for what is counted here, as {group: {name: value}}."""
        pool = accumulator.pool
        return {
            "producer-metrics": {
                "record-send-total": self.record_send_total,
                "record-retry-total": self.record_retry_total,
                "record-error-total": self.record_error_total,
                "batch-split-total": self.batch_split_total,
                "batch-size-avg": self.request_bytes_total / max(self.batch_total, 1),
                "records-per-request-avg": self.record_send_total / max(self.request_total, 1),
                "request-total": self.request_total,
                "request-latency-avg": self.request_latency_ms_total / max(self.response_total, 1),
                "request-latency-max": self.request_latency_ms_max,
                "produce-throttle-time-total": self.throttle_ms_total,
                "buffer-total-bytes": pool.capacity,
                "buffer-available-bytes": pool.available,
                "waiting-threads": pool.waiter_count,
                "bufferpool-wait-time-ns-total": self.memory_wait_ns_total,
                "flush-time-ns-total": self.flush_ns_total,
                "connection-count": nodes.connection_count,
                "io-wait-time-ns-total": nodes.wait_ns,
                "select-total": nodes.poll_count,
            }
        }
