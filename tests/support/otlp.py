"""Read OpenTelemetry's MetricsData by Google's protobuf library, from a description of its fields."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {"double": 1, "varint": 5, "fixed64": 6, "sfixed64": 16, "bool": 8, "string": 9, "message": 11}

# Message -> (name, number, type or message, is repeated); opentelemetry/proto/metrics/v1/metrics.proto.
_MESSAGES: dict[str, list[tuple[str, int, str, bool]]] = {
    "AnyValue": [("string_value", 1, "string", False)],
    "KeyValue": [("key", 1, "string", False), ("value", 2, "AnyValue", False)],
    "Resource": [("attributes", 1, "KeyValue", True)],
    "Scope": [("name", 1, "string", False), ("version", 2, "string", False)],
    "NumberDataPoint": [
        ("start_time_unix_nano", 2, "fixed64", False),
        ("time_unix_nano", 3, "fixed64", False),
        ("as_double", 4, "double", False),
        ("as_int", 6, "sfixed64", False),
        ("attributes", 7, "KeyValue", True),
    ],
    "Gauge": [("data_points", 1, "NumberDataPoint", True)],
    "Sum": [
        ("data_points", 1, "NumberDataPoint", True),
        ("aggregation_temporality", 2, "varint", False),
        ("is_monotonic", 3, "bool", False),
    ],
    "Metric": [
        ("name", 1, "string", False),
        ("description", 2, "string", False),
        ("unit", 3, "string", False),
        ("gauge", 5, "Gauge", False),
        ("sum", 7, "Sum", False),
    ],
    "ScopeMetrics": [("scope", 1, "Scope", False), ("metrics", 2, "Metric", True)],
    "ResourceMetrics": [("resource", 1, "Resource", False), ("scope_metrics", 2, "ScopeMetrics", True)],
    "MetricsData": [("resource_metrics", 1, "ResourceMetrics", True)],
}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="otlp_of_tests.proto", package="otlp_of_tests", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind, is_repeated in fields:
            field = described.field.add(name=name, number=number, label=3 if is_repeated else 1)
            field.type = _TYPES.get(kind, _TYPES["message"])
            if name in ("as_double", "as_int"):  # one of several: a zero is written, too
                if not described.oneof_decl:
                    described.oneof_decl.add(name="value")
                field.oneof_index = 0
            if kind not in _TYPES:
                field.type_name = f".otlp_of_tests.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("otlp_of_tests.MetricsData"))


_METRICS_DATA = _message_class()


def read_metrics(data: bytes) -> dict[str, Any]:
    """Return the metrics by name; raises if a byte is not understood.

    `{name: {"is_total", "temporality", "points": {subject: value}, "times": (start_ns, now_ns)}}`, and under the empty
    name the attributes of the resource with name and version of what measured. Java's clients write a resource for each
    metric, and a metric for each topic and broker; they are put together.
    """
    message = _METRICS_DATA.FromString(data)
    assert message.SerializeToString() == data  # nothing unknown, nothing in an order of its own
    read: dict[str, Any] = {"": {}}
    for of_resource in message.resource_metrics:
        read[""] |= {each.key: each.value.string_value for each in of_resource.resource.attributes}
        for of_scope in of_resource.scope_metrics:
            read[""]["scope"] = (of_scope.scope.name, of_scope.scope.version)
            for metric in of_scope.metrics:
                _add_metric(read, metric)
    return read


def _add_metric(read: dict[str, Any], metric: Any) -> None:
    is_total = metric.HasField("sum")
    points = (metric.sum if is_total else metric.gauge).data_points
    description = {
        "is_total": is_total and metric.sum.is_monotonic,
        "temporality": metric.sum.aggregation_temporality,
        "times": (points[0].start_time_unix_nano, points[0].time_unix_nano),
    }
    known = read.setdefault(metric.name, {"points": {}, **description})
    assert known["is_total"] == description["is_total"]
    for point in points:
        subject = ",".join(f"{each.key}={each.value.string_value}" for each in point.attributes)
        assert subject not in known["points"], (metric.name, subject)
        known["points"][subject] = point.as_double if point.HasField("as_double") else point.as_int
