"""The expressions of the Grafana dashboard use metrics, labels and types that a producer exports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.metrics.prometheus import PrometheusReporter
from tests.support.dashboard import Panel, Target, panels, variables

ALERTS = Path(__file__).resolve().parents[3] / "docs" / "demo" / "alerts.yml"
METRIC = re.compile(r"kafka_producer_\w+")
SELECTOR = re.compile(r"(kafka_producer_\w+)(\{[^}]*\})")
TARGETS = [(panel, target) for panel in panels() for target in panel.targets]
NAMES = [f"{panel.title}: {target.legend}" for panel, target in TARGETS]


@pytest.fixture(scope="module")
def exported() -> Iterator[dict[str, tuple[Metric, set[str]]]]:
    """Sample name -> its metric and the labels of its samples."""
    registry = CollectorRegistry()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        reporters = [PrometheusReporter(registry)]
        with Producer(bootstrap_servers=broker.bootstrap_servers, metric_reporters=reporters) as producer:
            producer.send("t", b"x").result(20)
            yield {
                sample.name: (metric, set(sample.labels)) for metric in registry.collect() for sample in metric.samples
            }


@pytest.mark.parametrize(("panel", "target"), TARGETS, ids=NAMES)
def test_an_expression_fits_what_is_exported(
    panel: Panel, target: Target, exported: dict[str, tuple[Metric, set[str]]]
) -> None:
    names = METRIC.findall(target.expression)
    assert names
    assert set(names) <= exported.keys()
    for name, selector in SELECTOR.findall(target.expression):
        assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= exported[name][1]
    kept = set(re.findall(r"\w+", "".join(re.findall(r"by \(([^)]*)\)", target.expression)))) - {"le"}
    for name in names:
        metric, labels = exported[name]
        assert kept <= labels
        assert (metric.type != "gauge") == (f"rate({name}" in target.expression), "rates are of counters"
    in_legend = set(re.findall(r"{{(\w+)}}", target.legend))
    remaining = kept if "by (" in target.expression else exported[names[0]][1]
    # Every label that tells series apart is in the legend, and nothing that is no longer there.
    assert in_legend == remaining


def test_every_selector_follows_the_choice_of_clients() -> None:
    for _, target in TARGETS:
        assert target.expression.count('{client_id=~"$client"}') == len(METRIC.findall(target.expression))


def test_the_clients_are_listed_by_a_metric_that_exists(exported: dict[str, tuple[Metric, set[str]]]) -> None:
    query = variables()["client"]
    matched = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert matched is not None
    assert matched[2] in exported[matched[1]][1]


def test_panels_and_series_can_be_told_apart() -> None:
    assert len({panel.id for panel in panels()}) == len({panel.title for panel in panels()}) == len(panels())
    for panel in panels():
        assert len({target.ref for target in panel.targets}) == len(panel.targets)
        assert len({target.legend for target in panel.targets}) == len(panel.targets)
        assert panel.refs_with_own_axis <= {target.ref for target in panel.targets}


def test_alerts_use_metrics_that_are_exported(exported: dict[str, tuple[Metric, set[str]]]) -> None:
    rules = ALERTS.read_text(encoding="utf-8")
    names = METRIC.findall(rules)
    assert len(re.findall(r"- alert: \w+", rules)) == 5
    assert set(names) <= exported.keys()
    assert set(re.findall(r"\$labels\.(\w+)", rules)) <= {label for name in names for label in exported[name][1]}


def test_every_metric_has_a_help_text_that_says_what_it_is(exported: dict[str, tuple[Metric, set[str]]]) -> None:
    texts = {metric.name: metric.documentation for metric, _ in exported.values()}
    assert not [name for name, text in texts.items() if len(text) < 10 or text.startswith("the metric")]
