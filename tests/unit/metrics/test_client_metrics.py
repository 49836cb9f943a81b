"""Which metrics are pushed to brokers, and as which bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaprod.metrics import ProducerMetrics
from kafkaprod.metrics.client_metrics import DETAILS, fitting, requested_metrics, since, totals_of
from kafkaprod.metrics.otlp import Metric, NumberDataPoint, metrics_data
from tests.support.otlp import read_metrics

SENT = "org.apache.kafka.producer.record.send.total"


def snapshot() -> dict[str, dict[str, object]]:
    metrics = ProducerMetrics("till")
    metrics.on_retry("orders", 3, 0)
    metrics.on_retry("bills", 2, 0)
    metrics.on_response(1, 5, 0)
    return metrics.snapshot(1)


def encoded(metrics: list[Metric]) -> bytes:
    return metrics_data(metrics, {}, ("kafkaprod", "1"), start_ns=1, now_ns=2, is_delta=True)


def test_prefixes_choose_whole_metrics() -> None:
    chosen = requested_metrics(snapshot(), ["org.apache.kafka.producer.topic.record.retry.", SENT])
    assert [metric.name for metric in chosen] == [
        SENT,
        "org.apache.kafka.producer.topic.record.retry.rate",
        "org.apache.kafka.producer.topic.record.retry.total",
    ]
    assert chosen[2] == Metric(
        chosen[2].name, True, [NumberDataPoint({"topic": "orders"}, 3.0), NumberDataPoint({"topic": "bills"}, 2.0)]
    )
    assert requested_metrics(snapshot(), []) == []
    assert requested_metrics(snapshot(), ["*"]) == requested_metrics(snapshot(), [""])


def test_every_group_of_numbers_has_a_name() -> None:
    names = {metric.name for metric in requested_metrics(snapshot(), ["*"])}
    assert len(names) == sum(
        len(values)
        for group, values in snapshot().items()
        if group not in ("app-info", "kafka-metrics-count", "producer-topic-metrics.bills")
    )


def test_differences_are_of_totals_only() -> None:
    metrics = [
        Metric("total", True, [NumberDataPoint({"topic": "a"}, 5.0)]),
        Metric("gauge", False, [NumberDataPoint({}, 5.0)]),
    ]
    later = [
        Metric("total", True, [NumberDataPoint({"topic": "a"}, 7.0), NumberDataPoint({"topic": "new"}, 1.0)]),
        Metric("gauge", False, [NumberDataPoint({}, 6.0)]),
    ]
    assert since(later, totals_of(metrics)) == [
        Metric("total", True, [NumberDataPoint({"topic": "a"}, 2.0), NumberDataPoint({"topic": "new"}, 1.0)]),
        Metric("gauge", False, [NumberDataPoint({}, 6.0)]),
    ]


def test_details_are_left_out_in_their_order_where_all_is_too_large() -> None:
    metrics = requested_metrics(snapshot(), ["*"])
    sizes = []
    for left_out in ("nothing", *DETAILS[1:]):
        metrics = [metric for metric in metrics if not metric.name.startswith(left_out)]
        sizes.append(len(encoded(metrics)))
    assert sizes == sorted(set(sizes), reverse=True)
    whole = requested_metrics(snapshot(), ["*"])
    assert [len(fitting(whole, size, encoded) or b"") for size in sizes] == sizes
    assert fitting(whole, sizes[0] - 1, encoded) == fitting(whole, sizes[1], encoded)
    assert fitting(whole, sizes[-1] - 1, encoded) is None


@given(
    metrics=st.dictionaries(
        st.text(min_size=1, max_size=200),
        st.tuples(
            st.booleans(), st.dictionaries(st.text(min_size=1, max_size=300), st.floats(allow_nan=False), min_size=1)
        ),
    ),
    resource=st.dictionaries(st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=5), max_size=3),
    is_delta=st.booleans(),
)
def test_bytes_are_read_by_protobuf(
    metrics: dict[str, tuple[bool, dict[str, float]]], resource: dict[str, str], is_delta: bool
) -> None:
    given_metrics = [
        Metric(name, is_total, [NumberDataPoint({"topic": subject}, value) for subject, value in points.items()])
        for name, (is_total, points) in metrics.items()
    ]
    data = metrics_data(given_metrics, resource, ("kafkaprod", "1"), start_ns=1, now_ns=2**63, is_delta=is_delta)
    read = read_metrics(data)
    assert read.pop("") == {**resource, "scope": ("kafkaprod", "1")}
    assert read == {
        name: {
            "is_total": is_total,
            "temporality": (1 if is_delta else 2) if is_total else 0,
            "points": {f"topic={subject}": value for subject, value in points.items()},
            "times": (1, 2**63),
        }
        for name, (is_total, points) in metrics.items()
    }
