"""Every metric that the Grafana dashboard names is one that a producer exports."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.metrics.prometheus import PrometheusReporter

DASHBOARD = Path(__file__).resolve().parents[3] / "docs" / "grafana-dashboard.json"


def test_the_dashboard_names_only_metrics_that_exist() -> None:
    registry = CollectorRegistry()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        reporters = [PrometheusReporter(registry)]
        with Producer(bootstrap_servers=broker.bootstrap_servers, metric_reporters=reporters) as producer:
            producer.send("t", b"x").result(20)
            lines = generate_latest(registry).decode().splitlines()
    exported = {re.split(r"[{ ]", line)[0]: line for line in lines if not line.startswith("#")}
    text = DASHBOARD.read_text(encoding="utf-8")
    named = set(re.findall(r"kafka_producer_\w+", text))
    assert len(named) > 15
    assert named <= exported.keys()
    board = json.loads(text)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert all(f'{label}="' in exported[name] for name in re.findall(r"kafka_producer_\w+", target["expr"]))
