"""The page docs/metrics.md: each metric of a producer, its unit and meaning, and how to export it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.metrics.meanings import STAGE_MEANINGS, meaning
from kafkaprod.metrics.producer_metrics import STAGES

_HEAD = """\
# Metrics

<!-- Made by `python -m tests.pages`; meanings are in kafkaprod/metrics/meanings.py. -->

`producer.metrics()` returns all metrics now, as `{group: {name: value}}`, under the names of the Java producer. Reading
costs about 10 us per topic and broker; counting is done per batch and per request, so there is nothing to switch off.

```python
from kafkaprod import Producer

with Producer(bootstrap_servers="localhost:9092") as producer:
    producer.send("orders", b"value").result()
    metrics = producer.metrics()
    print(metrics["producer-metrics"]["record-send-total"])
    print(metrics["producer-topic-metrics.orders"]["byte-total"])
    print(metrics["producer-latency-metrics"]["ack-time-us-p99"])
```

`-avg`, `-max`, `-rate` and `-ratio` cover the last `metrics_num_samples` windows of `metrics_sample_window_ms` (1 minute by
default); `-total` counts from the producer's start.

## What to watch

| question | metric | when it is bad |
| --- | --- | --- |
| are records lost? | `record-error-total` | it grows; alert on `rate(kafka_producer_record_error_total[5m]) > 0`. The failed futures say why, and the log for those that nothing looked at. Records that `send()` refused are not counted: it raised |
| do records get through? | `oldest-record-age`, `records-waiting`, `last-acknowledged-time` | the age nears `delivery_timeout_ms`: after 10 s something is wrong, long before records fail |
| do brokers have trouble? | `record-retry-rate`, `request-latency-max` | retries for minutes; latency near `request_timeout_ms` |
| do I send too fast? | `buffer-available-bytes`, `bufferpool-wait-ratio`, `buffer-exhausted-total` | available near 0; ratio over 0.1 |
| is a broker sick? | `node-state` of each broker | 2 for longer than an election; [what to do](deployment.md#when-a-broker-is-sick) |
| are batches full? | `batch-size-avg`, `records-per-request-avg` | far below `batch_size` at high rates: raise `linger_ms` |
| does compression pay? | `compression-rate-avg` | near 1: the values are compressed already, or random |
| am I throttled? | `produce-throttle-time-max` | above 0: a quota of the brokers |
| is the sender thread the limit? | `io-ratio` | near 1 |

## Prometheus and Grafana

With `pip install 'kafkaprod[metrics]'`:

```python
import urllib.request
from prometheus_client import start_http_server
from kafkaprod import Producer
from kafkaprod.metrics.prometheus import PrometheusReporter

server, thread = start_http_server(0)  # a service gives its port here, for example 9100
with Producer(bootstrap_servers="localhost:9092", metric_reporters=[PrometheusReporter()]) as producer:
    producer.send("orders", b"value").result()
    page = urllib.request.urlopen(f"http://localhost:{server.server_port}/metrics").read().decode()
    print([line for line in page.splitlines() if line.startswith("kafka_producer_record_send_total")])
server.shutdown()
server.server_close()
thread.join()
```

Names become `kafka_producer_record_send_total` and so on, with the label `client_id`; those of topics
`kafka_producer_topic_...` with the label `topic`, those of brokers `kafka_producer_node_...` with `node_id`. Stages of a
batch are histograms in seconds: `kafka_producer_batch_ack_seconds`. One reporter serves several producers; give them
different `client_id`s. With gunicorn use one port per worker, or the multiprocess mode of prometheus-client for your own
metrics only: these are read live and belong to one process.

[grafana-dashboard.json](grafana-dashboard.json) shows them: "Import" in Grafana, then choose the data source. Rules for
alerts are in `docs/demo/alerts.yml`. `docs/demo` has Kafka, a program, Prometheus and Grafana together for `docker compose up`.

## Pushed to the brokers

Brokers can collect metrics of their clients (KIP-714): with a plug-in that takes them (`metric.reporters` with a
`ClientTelemetry`) and a subscription made by `kafka-client-metrics.sh`. A producer then pushes what the subscription names,
at its interval, and once more when it closes, as OpenTelemetry's MetricsData; `enable_metrics_push=False` turns it off.
Without plug-in and subscription nothing is sent. Names are Java's: `record-send-total` of `producer-metrics` is
`org.apache.kafka.producer.record.send.total`, metrics of topics and brokers begin with `org.apache.kafka.producer.topic.` and
`org.apache.kafka.producer.node.` and have an attribute `topic` or `node_id`, latencies by stage with
`kafkaprod.producer.latency.`. Metrics that exceed the broker's limit go without those of topics, then of brokers. The id
that a broker gave the producer is `metrics()["app-info"]["client-instance-id"]`. In tests
[`EmbeddedBroker(client_metrics=True)`](broker-for-tests.md) takes what is pushed.

## Other reporters

`LogReporter(interval_s=60)` writes the metrics as a line of JSON to the logger `kafkaprod.metrics`. A reporter of your own is
an object with `start(source)` and `close()`: [Reporters of metrics](api-metrics.md).
"""


def snapshot() -> Mapping[str, Mapping[str, Any]]:
    """Return the metrics of a producer that sent a record."""
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedBroker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=directory) as producer,
    ):
        producer.send("t", b"value").result(30)
        return producer.metrics()


def metrics_page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *_groups(snapshot())])


def _groups(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    node = max(group for group in groups if group.startswith("producer-node-metrics."))
    of_producer = groups["producer-metrics"]
    of_spool = {name: value for name, value in of_producer.items() if name.startswith("spool-")}
    yield from _table(
        "Of the producer: `producer-metrics`",
        {name: of_producer[name] for name in of_producer.keys() - of_spool.keys()},
    )
    yield from _table("Of the spool, with `spool_dir`: `producer-metrics`", of_spool)
    yield from _table("Of a topic: `producer-topic-metrics.<topic>`", groups["producer-topic-metrics.t"])
    yield from _table("Of a broker: `producer-node-metrics.node-<id>`", groups[node])
    yield "## Latency by stage: `producer-latency-metrics`\n"
    yield "Not Kafka's. `<stage>-time-us-<what>` in microseconds since the start; `what` is avg, max, p50, p90, p99, p999.\n"
    yield "| stage | time |\n| --- | --- |"
    yield from (f"| `{stage}` | {STAGE_MEANINGS[stage]} |" for stage in STAGES)
    yield "\nOf a broker: `producer-node-latency-metrics.node-<id>`, with the stages append, send and ack."
    yield "\n`app-info` has the version and start time, `kafka-metrics-count` the number of metrics.\n"


def _table(title: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| name | meaning |\n| --- | --- |"
    yield from (f"| `{name}` | {meaning(name)} |" for name in sorted(values))
    yield ""
