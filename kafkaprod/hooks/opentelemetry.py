"""Traces and metrics by OpenTelemetry: `interceptors=[OpenTelemetryInterceptor()]` (extra `otel`).

`send()` carries the caller's trace context to the consumers in the record's headers. A block (`send_many`,
`send_columns`, a table's part) has one span from the call to the last of its records' outcomes, and all of its records
carry that span's context. Names are those of the semantic conventions for messaging, which are not stable yet. Source:
opentelemetry.io/docs/specs/semconv/messaging.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from kafkaprod._core.queues.record_hooks import headers_list
from kafkaprod.clock import monotonic_s
from kafkaprod.errors import broker_code
from kafkaprod.hooks.interceptors import ProducerRecord, RecordBlock
from kafkaprod.protocol.error_codes import describe
from kafkaprod.structs import RecordMetadata

_NAME: Final = "kafkaprod"
_DURATION_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class OpenTelemetryInterceptor:
    """Traces what a producer sends and counts it. Thread-safe; one object may serve several producers.

    Metrics: `messaging.client.sent.messages` counts records by their outcome (`error.type` where they failed),
    `messaging.client.operation.duration` is the time of blocks in seconds.

    Args:
        record_spans: Also make a span for each `send()`. It ends when the record is handed over, as the outcome comes
            later; it costs some 10 us a record, many times the sending itself.
        tracer_provider: None: the global one.
        meter_provider: None: the global one.
        propagator: Writes the context into headers; None: the global one (`traceparent`, `tracestate`, `baggage`).
    """

    def __init__(
        self,
        *,
        record_spans: bool = False,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._record_spans = record_spans
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._inject = propagator.inject if propagator is not None else propagate.inject
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Number of messages producer attempted to send."
        )
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_DURATION_BOUNDS_S,
        )
        self._open_blocks: dict[RecordBlock, tuple[Span, float]] = {}

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Add the trace context to a record's headers; those of the same names are replaced."""
        headers = headers_list(record.headers)
        if not isinstance(headers, list):
            return record  # not headers at all: send() refuses them
        if not self._record_spans:
            carrier = self._carrier(context.get_current())
        else:
            with self._tracer.start_as_current_span(
                f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=_attributes(record.topic)
            ):
                carrier = self._carrier(context.get_current())
        kept = [pair for pair in headers if not (isinstance(pair, tuple) and pair and pair[0] in carrier)]
        return record._replace(headers=[*kept, *carrier.items()])

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Count a record by its outcome."""
        self._count(metadata.topic, 1, error)

    def on_block(self, block: RecordBlock) -> None:
        """Begin the span of a block."""
        span = self._tracer.start_span(
            f"send {block.topic}",
            kind=SpanKind.PRODUCER,
            attributes={**_attributes(block.topic), "messaging.batch.message_count": block.record_count},
        )
        self._open_blocks[block] = (span, monotonic_s())
        for name, value in self._carrier(trace.set_span_in_context(span)).items():
            block.add_header(name, value)

    def on_block_acknowledgement(self, block: RecordBlock, failed_count: int, error: BaseException | None) -> None:
        """End the span of a block, and count its records."""
        span, began = self._open_blocks.pop(block)
        self._count(block.topic, block.record_count - failed_count, None)
        self._count(block.topic, failed_count, error)
        self._duration.record(monotonic_s() - began, _attributes(block.topic, error))
        if error is not None:
            span.set_attribute("error.type", _error_type(error))
            span.set_status(Status(StatusCode.ERROR, f"{failed_count} of {block.record_count} records failed: {error}"))
        span.end()

    def _carrier(self, of: context.Context) -> Mapping[str, bytes]:
        carrier: dict[str, str] = {}
        self._inject(carrier, of)
        return {name: value.encode() for name, value in carrier.items()}

    def _count(self, topic: str, count: int, error: BaseException | None) -> None:
        if count:
            self._sent.add(count, _attributes(topic, error))


def _attributes(topic: str, error: BaseException | None = None) -> dict[str, str]:
    attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }
    return attributes if error is None else {**attributes, "error.type": _error_type(error)}


def _error_type(error: BaseException) -> str:
    """Kafka's name of a broker's error, or else the name of the class."""
    code = broker_code(error) if isinstance(error, Exception) else None
    return type(error).__qualname__ if code is None else describe(code).name
