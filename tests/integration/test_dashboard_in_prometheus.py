"""Prometheus scrapes producers in good and in bad times, and evaluates every expression of the dashboard.

It runs where `prometheus` is on the PATH, or `KAFKAPROD_PROMETHEUS` names it (Debian's package will do).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import close, delay, reply_with, throttle
from kafkaprod.errors import KafkaError
from kafkaprod.metrics.prometheus import PrometheusReporter
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.ports import free_ports
from tests.support.dashboard import panels, variables

PROGRAM = os.environ.get("KAFKAPROD_PROMETHEUS") or shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="there is no prometheus on this machine"),
]

INTERVAL = "4s"  # of rates: eight scrapes
STAGE_S = 5.0
VALUE = b"x" * 1000


class Watched(NamedTuple):
    """What Prometheus recorded: its address, the time of each stage, and what the producers counted at the end."""

    address: str
    stages: dict[str, tuple[float, float]]
    totals: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watch(tmp_path_factory.mktemp("prometheus")) as watched:
        yield watched


@contextmanager
def watch(directory: Path) -> Iterator[Watched]:
    """Two producers that send, one that may not log in, and Prometheus, which keeps its data in the directory."""
    registry = CollectorRegistry()
    with ExitStack() as stack:
        server, thread = start_http_server(0, "127.0.0.1", registry)
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        address = start_prometheus(stack, directory, server.server_port)
        broker = stack.enter_context(EmbeddedBroker(topics={"orders": 3, "clicks": 1}))
        locked = stack.enter_context(EmbeddedBroker(sasl_users={"alice": "right"}))
        reporters = [PrometheusReporter(registry)]
        options: dict[str, Any] = {"metric_reporters": reporters, "reconnect_backoff_ms": 100}
        options |= {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 5, "retry_backoff_ms": 50}
        steady = Producer(options, client_id="steady", compression_type="lz4")
        narrow = Producer(options, client_id="narrow", buffer_memory=64 << 10, batch_size=16 << 10, max_block_ms=60_000)
        stranger = Producer(
            options | {"bootstrap_servers": locked.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT"},
            client_id="stranger",
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="wrong",
            max_block_ms=100,
        )
        for producer in (steady, narrow, stranger):
            stack.enter_context(suppress(KafkaError))  # records of theirs have failed, on purpose
            stack.callback(producer.close)
        stages = run_stages(broker, steady, narrow, stranger)
        for producer in (steady, narrow):
            with suppress(KafkaError):  # as above
                producer.flush()
        await_scrape(address, time.time())
        yield Watched(address, stages, {"steady": steady.metrics(), "narrow": narrow.metrics()})


def start_prometheus(stack: ExitStack, directory: Path, port: int) -> str:
    """Start Prometheus, which scrapes `port`; return its address."""
    config = {
        "global": {"scrape_interval": "500ms"},
        "scrape_configs": [{"job_name": "producers", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    (own_port,) = free_ports(1)
    assert PROGRAM is not None
    command = [PROGRAM, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"]
    running = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{own_port}"], cwd=directory)
    stack.callback(running.wait)
    stack.callback(running.terminate)
    address = f"http://127.0.0.1:{own_port}"
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{address}/-/ready", timeout=5):
                return address
        except OSError:
            assert time.monotonic() < end, "Prometheus does not answer"
            assert running.poll() is None, "Prometheus ended"
            time.sleep(0.1)


def run_stages(
    broker: EmbeddedBroker, steady: Producer, narrow: Producer, stranger: Producer
) -> dict[str, tuple[float, float]]:
    """Send through quiet, throttled, retried, failed, cut and slow times; return when each began and ended."""
    stages: dict[str, tuple[float, float]] = {}
    faults: dict[str, Any] = {
        "quiet": None,
        "throttled": throttle(100),
        "retried": reply_with(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        "failed": reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        "cut": close(),
        "slow": delay(300),
    }
    over = threading.Event()
    waiting = threading.Thread(target=send_much, args=(narrow, over))
    waiting.start()
    try:
        for name, fault in faults.items():
            started = time.time()
            if fault is not None:
                broker.faults.on(ApiKey.PRODUCE, fault, rate=1.0 if name in ("slow", "throttled") else 0.3, seed=1)
            end = time.monotonic() + STAGE_S
            while time.monotonic() < end:
                steady.send_many("orders", [VALUE] * 90)
                steady.send("clicks", b"click")
                if name == "failed":
                    with pytest.raises(KafkaError):
                        stranger.send("orders", b"x")
                time.sleep(0.05)
            broker.faults.clear()
            stages[name] = (started, time.time())
    finally:
        over.set()
        broker.faults.clear()
        waiting.join()
    return stages


def send_much(producer: Producer, over: threading.Event) -> None:
    """Send more than its memory holds."""
    while not over.is_set():
        for _ in range(100):
            producer.send("orders", VALUE)
        time.sleep(0.01)


def ask(address: str, path: str, **arguments: Any) -> Any:
    """Return the data of an answer of Prometheus's HTTP interface."""
    query = urllib.parse.urlencode(arguments, doseq=True)
    with urllib.request.urlopen(f"{address}/api/v1/{path}?{query}", timeout=30) as answer:
        read = json.load(answer)
    assert read["status"] == "success"
    return read["data"]


def await_scrape(address: str, after_s: float) -> None:
    """Wait until Prometheus has scraped all producers after a time, in seconds since 1970."""
    end = time.monotonic() + 60
    while True:
        scraped = ask(address, "query", query="timestamp(up)")["result"]
        if scraped and all(float(sample["value"][1]) > after_s for sample in scraped):
            return
        assert time.monotonic() < end, "Prometheus scrapes no more"
        time.sleep(0.1)


def evaluate(watched: Watched, expression: str, stage: str) -> dict[frozenset[tuple[str, str]], list[float]]:
    """Return the finite values of each series in a stage, a value for each half second."""
    start, end = watched.stages[stage]
    data = ask(watched.address, "query_range", query=expression, start=start, end=end + 0.5, step="500ms")
    read = {}
    for series in data["result"]:
        values = [float(value) for _, value in series["values"]]
        labels = {key: value for key, value in series["metric"].items() if key not in ("__name__", "instance", "job")}
        read[frozenset(labels.items())] = [value for value in values if math.isfinite(value)]
    return read


TARGETS = [(panel, target) for panel in panels() for target in panel.targets]
# What is to be seen: the highest value of the stage is between these, for the client or topic, or of any series.
SEEN = {
    ("Records sent", "A"): ("quiet", "steady", 200, 3_000),
    ("Bytes sent by topic", "A"): ("quiet", "orders", 1_000, 50e6),
    ("Failed and retried records", "A"): ("failed", "steady", 1, 3_000),
    ("Failed and retried records", "B"): ("retried", "steady", 1, 3_000),
    ("Failed records by topic", "A"): ("failed", "orders", 1, 10_000),
    ("99th percentile of batches by stage", "A"): ("quiet", "", 0, 30),
    ("99th percentile of batches by stage", "B"): ("quiet", "", 0, 30),
    ("99th percentile of batches by stage", "C"): ("quiet", "", 0, 30),
    ("99th percentile of batches by stage", "D"): ("slow", "", 0.25, 10),
    ("Request latency by broker", "A"): ("slow", "narrow", 1, 5_000),
    ("Request latency by broker", "B"): ("slow", "narrow", 250, 30_000),
    ("Memory that is free, and threads that wait for it", "A"): ("quiet", "steady", 0.5, 1),
    ("Memory that is free, and threads that wait for it", "B"): ("slow", "narrow", 1, 1),
    ("Batch size and compression", "A"): ("quiet", "steady", 100, 300_000),
    ("Batch size and compression", "B"): ("quiet", "steady", 0.001, 0.5),
    ("Requests in flight, throttling by brokers", "A"): ("slow", "narrow", 1, 10),
    ("Requests in flight, throttling by brokers", "B"): ("throttled", "steady", 1, 100),
    ("Connections and refused logins", "A"): ("quiet", "steady", 1, 3),
    ("Connections and refused logins", "B"): ("failed", "stranger", 0.1, 50),
    ("Connections and refused logins", "C"): ("cut", "steady", 0.1, 50),
}


@pytest.mark.parametrize(("panel", "target"), TARGETS, ids=[f"{p.title}: {t.legend}" for p, t in TARGETS])
def test_an_expression_shows_what_happened(watched: Watched, panel: Any, target: Any) -> None:
    stage, subject, low, high = SEEN[panel.title, target.ref]
    read = evaluate(watched, target.filled(INTERVAL), stage)
    assert read, "an empty panel"
    of_subject = [values for labels, values in read.items() if not subject or subject in {value for _, value in labels}]
    assert len(of_subject) == 1 or panel.title == "Request latency by broker", read.keys()
    highest = max(max(values) for values in of_subject if values)
    assert low <= highest <= high, of_subject


def test_the_last_values_are_what_was_counted(watched: Watched) -> None:
    for client, metrics in watched.totals.items():
        for name in ("record_send_total", "record_error_total", "record_retry_total"):
            data = ask(watched.address, "query", query=f'kafka_producer_{name}{{client_id="{client}"}}')
            (series,) = data["result"]
            assert float(series["value"][1]) == metrics["producer-metrics"][name.replace("_", "-")], name


def test_the_clients_can_be_chosen(watched: Watched) -> None:
    metric, label = variables()["client"].removeprefix("label_values(").removesuffix(")").split(", ")
    found = ask(watched.address, f"label/{label}/values", **{"match[]": metric})
    assert found == ["narrow", "steady", "stranger"]
