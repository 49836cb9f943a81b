"""Traces and metrics as the OpenTelemetry SDK's in-memory exporters read them back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.errors import DeliveryFailedError, InvalidRecordError
from kafkaprod.hooks.opentelemetry import OpenTelemetryInterceptor
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.reading import read_all

LIMIT_S = 20.0
TOPIC = {"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send"}


class Telemetry:
    """Providers of their own, and what reached them."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics], shutdown_on_exit=False)

    def interceptor(self, **options: Any) -> OpenTelemetryInterceptor:
        return OpenTelemetryInterceptor(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def points(self, name: str) -> dict[tuple[str, Any], Any]:
        """The points of a metric by (topic, error type)."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        return {
            (str(attributes.pop("messaging.destination.name")), attributes.pop("error.type", None)): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            for attributes in [dict(point.attributes or {})]
        }

    def sent(self) -> dict[tuple[str, Any], int]:
        return {key: point.value for key, point in self.points("messaging.client.sent.messages").items()}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"v": 1}) as broker:
        yield broker


def _headers(broker: EmbeddedBroker) -> list[dict[str, bytes | None]]:
    return [dict(record.headers) for record in read_all(broker.bootstrap_servers, "v")[0]]


def _traceparent(of: Any) -> bytes:
    context = of.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()


def test_record_carries_the_callers_trace(broker: EmbeddedBroker) -> None:
    telemetry = Telemetry()
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer,
        telemetry.tracers.get_tracer("test").start_as_current_span("order") as order,
    ):
        producer.send("v", b"a", headers=[("own", b"1"), ("traceparent", b"of another trace")])
        producer.send("v", b"b", headers=iter([("own", b"1")]))
        producer.send("v", b"c", headers={"own": b"1"})
    assert _headers(broker) == [{"own": b"1", "traceparent": _traceparent(order)}] * 3
    assert [span.name for span in telemetry.spans()] == ["order"]
    assert telemetry.sent() == {("v", None): 3}


def test_record_without_a_trace_keeps_its_headers(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[Telemetry().interceptor()]) as producer:
        producer.send("v", b"a", headers=iter([("own", b"1")]))
        producer.send("v", b"b")
        with pytest.raises(InvalidRecordError):
            producer.send("v", b"c", headers=3)  # type: ignore[arg-type]
    assert _headers(broker) == [{"own": b"1"}, {}]


def test_span_of_a_record_is_a_child_of_the_callers(broker: EmbeddedBroker) -> None:
    telemetry = Telemetry()
    interceptor = telemetry.interceptor(record_spans=True)
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[interceptor]) as producer,
        telemetry.tracers.get_tracer("test").start_as_current_span("order") as order,
    ):
        producer.send("v", b"a")
    span = next(span for span in telemetry.spans() if span.name == "send v")
    assert span.parent is not None
    assert span.parent.span_id == order.get_span_context().span_id
    assert span.kind is trace.SpanKind.PRODUCER
    assert _headers(broker) == [{"traceparent": _traceparent(span)}]


def test_block_has_one_span_which_all_its_records_carry(broker: EmbeddedBroker) -> None:
    telemetry = Telemetry()
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        producer.send_many("v", [b"a", b"b", b"c"], headers=[("own", b"1")]).result(LIMIT_S)
    [span] = telemetry.spans()
    assert span.name == "send v"
    assert dict(span.attributes or {}) == {
        **TOPIC,
        "messaging.destination.name": "v",
        "messaging.batch.message_count": 3,
    }
    assert span.status.is_unset
    assert _headers(broker) == [{"own": b"1", "traceparent": _traceparent(span)}] * 3
    assert telemetry.sent() == {("v", None): 3}
    duration = telemetry.points("messaging.client.operation.duration")["v", None]
    assert isinstance(duration, HistogramDataPoint)
    assert duration.count == 1
    assert duration.explicit_bounds[:2] == (0.005, 0.01)


def test_failures_have_kafkas_name_and_the_span_says_so(broker: EmbeddedBroker) -> None:
    telemetry = Telemetry()
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[telemetry.interceptor()]) as producer:
        for send in (lambda: producer.send_many("v", [b"a", b"b"]), lambda: producer.send("v", b"c")):
            broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
            send()
            with pytest.raises(DeliveryFailedError):
                producer.flush()
        with pytest.raises(InvalidRecordError):
            producer.send_many("v", [b"a"], partition=-5)
    failed, refused = telemetry.spans()
    for span, error_type in ((failed, "TOPIC_AUTHORIZATION_FAILED"), (refused, "InvalidRecordError")):
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})["error.type"] == error_type
    assert "2 of 2 records failed" in (failed.status.description or "")
    assert telemetry.sent() == {("v", "TOPIC_AUTHORIZATION_FAILED"): 3, ("v", "InvalidRecordError"): 1}
