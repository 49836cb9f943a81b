import ast
import json
import logging
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import kafkaprod
from kafkaprod.metrics import LatencyHistogram, LogReporter, ProducerMetrics, Snapshot, Stage
from kafkaprod.metrics.producer_metrics import COUNTER_NAMES, Timer
from kafkaprod.metrics.prometheus import PrometheusReporter, exposition
from kafkaprod.metrics.sums import TopicSample
from kafkaprod.metrics.windows import SampleRing
from kafkaprod.structs import RequestSums

WINDOW_MS = 30_000
PACKAGE = Path(kafkaprod.__file__).parent


class Batch(NamedTuple):
    topic: str
    record_count: int
    size_bytes: int
    created_ms: int
    ratio: float = 1.0

    @property
    def sent_bytes(self) -> int:
        return round(self.size_bytes * self.ratio)


def sums_of(batches: list[Batch], now_ms: int) -> RequestSums:
    """As ProduceRequest.sums() makes them."""
    return RequestSums(
        len(batches),
        sum(batch.size_bytes for batch in batches),
        sum(batch.sent_bytes for batch in batches),
        max(batch.sent_bytes for batch in batches),
        max(batch.size_bytes / batch.record_count for batch in batches),
        [(batch.topic, batch.record_count, batch.size_bytes, batch.sent_bytes) for batch in batches],
        [(now_ms - batch.created_ms, 1) for batch in batches],
    )


class Source:
    """What a producer gives its reporters: metrics and a clock, here one that stands still."""

    def __init__(self, metrics: ProducerMetrics, now_ms: int = 0) -> None:
        self.metrics = metrics
        self.now_ms = now_ms

    @property
    def client_id(self) -> str:
        return self.metrics.client_id

    @property
    def histograms(self) -> Mapping[Stage, LatencyHistogram]:
        return self.metrics.histograms

    def snapshot(self) -> Snapshot:
        return self.metrics.snapshot(self.now_ms)


@pytest.fixture
def metrics() -> ProducerMetrics:
    return ProducerMetrics("p", "1.2.3", 1_700_000_000_000)


def counters(**given: int) -> Any:
    return SimpleNamespace(**(dict.fromkeys(COUNTER_NAMES, 0) | given))


def producer_metrics(metrics: ProducerMetrics, now_ms: int) -> dict[str, float]:
    return metrics.snapshot(now_ms)["producer-metrics"]


# -- windows -----------------------------------------------------------------------------------------------------------


def test_rate_covers_at_least_all_windows_but_one() -> None:
    ring = SampleRing(TopicSample, 2, WINDOW_MS)
    ring.current(1000).records += 60
    assert ring.recent(1000)[1] == 30.0
    recent, seconds = ring.recent(41_000)
    assert (recent.records, seconds) == (60, 40.0)


def test_sample_that_is_too_old_leaves_the_rate_but_not_the_total() -> None:
    ring = SampleRing(TopicSample, 2, WINDOW_MS)
    ring.current(0).records += 5
    ring.current(40_000).records += 7
    assert ring.recent(59_999)[0].records == 12
    assert ring.recent(60_000)[0].records == 7
    ring.current(80_000).records += 1
    assert ring.recent(80_000)[0].records == 8
    assert ring.recent(10**9)[0].records == 0
    assert ring.total().records == 13


def test_asking_changes_nothing() -> None:
    ring = SampleRing(TopicSample, 2, WINDOW_MS)
    ring.current(0).records += 5
    first, seconds = ring.recent(10**9)
    again, seconds_again = ring.recent(10**9)
    assert [getattr(again, name) for name in TopicSample.NAMES] == [getattr(first, name) for name in TopicSample.NAMES]
    assert seconds_again == seconds
    assert ring.recent(1000)[0].records == 5


def test_windows_last_as_configured_and_as_many_are_kept() -> None:
    ring = SampleRing(TopicSample, 3, 10)
    for now_ms in (0, 9, 10, 20, 30):
        ring.current(now_ms).records += 1
    assert ring.recent(30)[0].records == 2 + 1
    assert ring.total().records == 5


def test_maxima_are_of_recent_windows() -> None:
    metrics = ProducerMetrics()
    metrics.on_response(1, 900, 0)
    metrics.on_response(1, 100, 40_000)
    assert producer_metrics(metrics, 40_000)["request-latency-max"] == 900
    assert producer_metrics(metrics, 60_000)["request-latency-max"] == 100


# -- what is recorded --------------------------------------------------------------------------------------------------


def test_request_counts_records_batches_and_bytes(metrics: ProducerMetrics) -> None:
    batches = [Batch("a", 10, 1000, 0, 0.5), Batch("b", 30, 3000, 400, 0.5)]
    metrics.on_request(1, sums_of(batches, 500), 2000, 500)
    values = producer_metrics(metrics, 500)
    assert values["record-send-total"] == 40
    assert values["record-send-rate"] == pytest.approx(40 / 30)
    assert values["records-per-request-avg"] == 40
    assert (values["batch-size-avg"], values["batch-size-max"]) == (1000, 1500)
    assert values["compression-rate-avg"] == 0.5
    assert (values["record-queue-time-avg"], values["record-queue-time-max"]) == (300, 500)
    assert (values["record-size-avg"], values["record-size-max"]) == (100, 100)
    assert (values["request-size-avg"], values["request-size-max"]) == (2000, 2000)


def test_topics_and_nodes_have_groups_of_their_own(metrics: ProducerMetrics) -> None:
    metrics.on_request(1, sums_of([Batch("a", 10, 1000, 0, 0.5)], 0), 500, 0)
    metrics.on_request(-2, sums_of([Batch("b", 1, 100, 0)], 0), 100, 0)
    metrics.on_response(1, 20, 20)
    snapshot = metrics.snapshot(20)
    topic = snapshot["producer-topic-metrics.a"]
    assert (topic["record-send-total"], topic["byte-total"], topic["compression-rate"]) == (10, 500, 0.5)
    node = snapshot["producer-node-metrics.node-1"]
    assert (node["request-size-avg"], node["request-latency-avg"]) == (500, 20)
    assert snapshot["producer-node-metrics.node--2"]["request-size-max"] == 100


def test_retries_errors_splits_and_throttling_are_counted(metrics: ProducerMetrics) -> None:
    metrics.on_retry("a", 5, 0)
    metrics.on_error("a", 3, 0)
    metrics.on_split(0)
    metrics.on_response(1, 10, 0)
    metrics.on_throttle(80, 0)
    values = producer_metrics(metrics, 0)
    assert (values["record-retry-total"], values["record-error-total"], values["batch-split-total"]) == (5, 3, 1)
    assert (values["produce-throttle-time-avg"], values["produce-throttle-time-max"]) == (80, 80)
    topic = metrics.snapshot(0)["producer-topic-metrics.a"]
    assert (topic["record-retry-total"], topic["record-error-total"]) == (5, 3)


def test_connection_counters_become_rates_and_totals(metrics: ProducerMetrics) -> None:
    metrics.observe_nodes({1: counters(bytes_sent=1000, connections_created=2, connections_closed=1)}, 0)
    metrics.observe_nodes({1: counters(bytes_sent=1600, connections_created=2, connections_closed=1)}, 40_000)
    metrics.observe_nodes({2: counters(bytes_sent=50, requests_sent=4, responses_received=3)}, 40_000)
    values = producer_metrics(metrics, 40_000)
    assert (values["outgoing-byte-total"], values["connection-count"], values["network-io-total"]) == (1650, 1, 7)
    assert values["outgoing-byte-rate"] == pytest.approx(1650 / 40)
    node = metrics.snapshot(60_000)["producer-node-metrics.node-1"]
    assert node["outgoing-byte-total"] == 1600
    assert node["outgoing-byte-rate"] == pytest.approx(600 / 30)


def test_loop_times_become_ratios(metrics: ProducerMetrics) -> None:
    metrics.observe_loop(100, 7_000_000_000, 0)
    metrics.observe_loop(104, 22_000_000_000, 18_000)
    values = producer_metrics(metrics, 30_000)
    assert (values["io-wait-ratio"], values["io-ratio"]) == (0.5, 0.1)
    assert (values["select-total"], values["io-wait-time-ns-avg"]) == (4, 15_000_000_000 / 4)


def test_waits_of_callers_are_counted_from_several_threads(metrics: ProducerMetrics) -> None:
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(500):
            metrics.add_memory_wait(1000, 0)
            metrics.add_refused_records(2, 0)
            metrics.add_time("flush", 10)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = producer_metrics(metrics, 0)
    assert values["bufferpool-wait-time-ns-total"] == 2_000_000
    assert values["buffer-exhausted-total"] == 4000
    assert values["flush-time-ns-total"] == 20_000


def test_gauges_are_read_when_asked_for(metrics: ProducerMetrics) -> None:
    metrics.add_gauge("metadata-age", lambda now_ms: now_ms / 1000)
    assert producer_metrics(metrics, 1500)["metadata-age"] == 1.5
    assert producer_metrics(metrics, 2500)["metadata-age"] == 2.5


def test_stages_have_percentiles(metrics: ProducerMetrics) -> None:
    metrics.on_request(1, sums_of([Batch("a", 1, 100, 0), Batch("a", 1, 100, 3)], 5), 100, 5, seal_us=50)
    metrics.on_response(1, 7, 12)
    latencies = metrics.snapshot(12)["producer-latency-metrics"]
    assert (latencies["append-time-us-max"], latencies["append-time-us-avg"]) == (5000, 3500)
    assert latencies["ack-time-us-p50"] == 7000
    assert (latencies["seal-time-us-p99"], latencies["seal-time-us-avg"], latencies["send-time-us-max"]) == (50, 50, 0)


def test_stages_of_a_broker_are_its_own(metrics: ProducerMetrics) -> None:
    for node_id, latency_ms in ((1, 7), (2, 900)):
        metrics.on_request(node_id, sums_of([Batch("a", 1, 100, 0)], 5), 100, 5, seal_us=50)
        metrics.on_written(node_id, latency_ms - 5, 1)
        metrics.on_response(node_id, latency_ms, 12)
    snapshot = metrics.snapshot(12)
    quick, slow = (snapshot[f"producer-node-latency-metrics.node-{node_id}"] for node_id in (1, 2))
    assert (quick["append-time-us-p99"], quick["send-time-us-p99"], quick["ack-time-us-p99"]) == (5000, 2000, 7000)
    assert (slow["send-time-us-max"], slow["ack-time-us-max"]) == (895_000, 900_000)
    assert "seal-time-us-p99" not in quick
    assert snapshot["producer-latency-metrics"]["send-time-us-max"] == 895_000


KAFKA_NAMES = """
    failed-reauthentication-rate failed-reauthentication-total reauthentication-latency-avg
    reauthentication-latency-max
    batch-size-avg batch-size-max batch-split-rate batch-split-total compression-rate-avg record-queue-time-avg
    record-queue-time-max request-latency-avg request-latency-max record-send-rate record-send-total
    records-per-request-avg record-retry-rate record-retry-total record-error-rate record-error-total record-size-avg
    record-size-max produce-throttle-time-avg produce-throttle-time-max bufferpool-wait-ratio
    bufferpool-wait-time-ns-total buffer-exhausted-rate buffer-exhausted-total flush-time-ns-total
    metadata-wait-time-ns-total txn-init-time-ns-total txn-begin-time-ns-total txn-send-offsets-time-ns-total
    txn-commit-time-ns-total txn-abort-time-ns-total connection-close-rate
    connection-close-total connection-creation-rate connection-creation-total successful-authentication-rate
    successful-authentication-total failed-authentication-rate failed-authentication-total
    successful-reauthentication-rate successful-reauthentication-total connection-count network-io-rate
    network-io-total outgoing-byte-rate outgoing-byte-total incoming-byte-rate incoming-byte-total request-rate
    request-total response-rate response-total request-size-avg request-size-max select-rate select-total
    io-wait-time-ns-avg io-wait-ratio io-wait-time-ns-total io-time-ns-avg io-ratio io-time-ns-total
"""


def test_names_are_kafkas(metrics: ProducerMetrics) -> None:
    """Without those of two-phase commits and of brokers' clients that cannot log in again, which would stay 0."""
    assert sorted(producer_metrics(metrics, 0)) == sorted(KAFKA_NAMES.split())


def test_every_metric_is_written_by_the_product() -> None:
    """A recorder that nothing calls, or a timer that nothing adds to, would be a dashboard's zero for ever."""
    sources = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "metrics"]
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    compiled = "\n".join(path.read_text() for path in PACKAGE.rglob("*.pyx"))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    recorders = {name for name in vars(ProducerMetrics) if name.startswith(("on_", "add_", "observe_"))}
    assert recorders - attributes == set()
    assert set(get_args(Timer)) - words == set()
    targets = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    added_to = {target.attr for target in targets if isinstance(target, ast.Attribute)}
    added_to |= set(re.findall(r"metrics\.(\w+) \+=", compiled))
    assert set(COUNTER_NAMES) - added_to == set()


def test_repeated_logins_are_timed(metrics: ProducerMetrics) -> None:
    metrics.observe_nodes({1: counters(reauthentications_succeeded=1, reauthentication_ms=30)}, 0)
    metrics.observe_nodes({1: counters(reauthentications_succeeded=2, reauthentication_ms=80)}, 100)
    metrics.observe_nodes({1: counters(reauthentications_succeeded=2, reauthentication_ms=80)}, 200)
    values = producer_metrics(metrics, 200)
    assert (values["reauthentication-latency-avg"], values["reauthentication-latency-max"]) == (40, 50)
    assert values["successful-reauthentication-total"] == 2


def test_snapshot_has_the_shape_of_kafka_python(metrics: ProducerMetrics) -> None:
    snapshot = metrics.snapshot(0)
    assert snapshot["app-info"] == {"version": "1.2.3", "commit-id": "", "start-time-ms": 1_700_000_000_000}
    others = [values for group, values in snapshot.items() if group != "kafka-metrics-count"]
    assert snapshot["kafka-metrics-count"]["count"] == sum(map(len, others)) + 1
    assert json.loads(json.dumps(snapshot)) == snapshot


def test_snapshot_of_nothing_is_zeros(metrics: ProducerMetrics) -> None:
    assert set(producer_metrics(metrics, 0).values()) == {0}


def test_snapshot_may_be_taken_while_the_sender_records(metrics: ProducerMetrics) -> None:
    ended = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not ended.is_set():
                metrics.snapshot(0)
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(2000):
        metrics.on_request(number, sums_of([Batch(f"t{number}", 1, 10, 0)], number * 100), 10, number * 100)
    ended.set()
    reader.join()
    assert errors == []
    assert producer_metrics(metrics, 200_000)["record-send-total"] == 2000


# -- histogram ---------------------------------------------------------------------------------------------------------


def test_percentiles_of_few_values_are_the_values() -> None:
    histogram = LatencyHistogram()
    for value in range(1, 11):
        histogram.record(value)
    assert histogram.percentiles([0, 0.5, 0.9, 1]) == [1, 5, 9, 10]
    assert (histogram.mean, histogram.highest, histogram.count) == (5.5, 10, 10)


def test_histogram_without_values_answers_zero() -> None:
    assert LatencyHistogram().percentiles([0.5, 1]) == [0, 0]
    assert LatencyHistogram().mean == 0.0


# -- reporters ---------------------------------------------------------------------------------------------------------


def test_log_reporter_writes_lines_until_closed(metrics: ProducerMetrics, caplog: pytest.LogCaptureFixture) -> None:
    reporter = LogReporter(interval_s=3600)
    with caplog.at_level(logging.INFO, "kafkaprod.metrics"):
        reporter.start(Source(metrics))
        metrics.on_split(0)
        reporter.close()
    name, _, text = caplog.records[-1].getMessage().partition(" ")
    assert name == "p"
    assert json.loads(text)["producer-metrics"]["batch-split-total"] == 1


def scraped(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    families = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_exposition_is_read_back_by_the_library(metrics: ProducerMetrics) -> None:
    metrics.on_request(1, sums_of([Batch("a", 10, 1000, 0)], 0), 1000, 0)
    metrics.on_response(1, 3, 3)
    values = scraped(exposition(Source(metrics)))
    assert values["kafka_producer_record_send_total", ("p",)] == 10
    assert values["kafka_producer_topic_byte_total", ("a", "p")] == 1000
    assert values["kafka_producer_node_request_latency_max", ("node-1", "p")] == 3
    assert values["kafka_producer_batch_ack_seconds_count", ("p",)] == 1
    assert values["kafka_producer_batch_ack_seconds_sum", ("p",)] == 0.003
    assert values["kafka_producer_batch_ack_seconds_bucket", ("0.004095", "p")] == 1
    assert values["kafka_producer_batch_ack_seconds_bucket", ("0.002047", "p")] == 0


def test_producers_share_a_registry_and_leave_it_when_closed() -> None:
    registry = CollectorRegistry(auto_describe=True)
    reporters = [PrometheusReporter(registry), PrometheusReporter(registry)]
    for name, reporter in zip("ab", reporters, strict=True):
        reporter.start(Source(ProducerMetrics(name)))
    values = scraped(generate_latest(registry))
    assert {labels for name, labels in values if name == "kafka_producer_record_send_total"} == {("a",), ("b",)}
    reporters[0].close()
    values = scraped(generate_latest(registry))
    assert {labels for name, labels in values if name == "kafka_producer_record_send_total"} == {("b",)}
    reporters[1].close()
    reporters[1].close()
    assert generate_latest(registry) == b""
