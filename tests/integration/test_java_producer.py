"""Apache Kafka's Java producer: it pushes its metrics to the embedded broker, and its options are all in the list."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.runtime import BROKER_VERSION, FAST_START, OLD_BROKER_VERSION, broker_class_path, java
from tests.support.broker.subscriptions import subscribe
from tests.support.broker.telemetry import pushes_until
from tests.support.kafka.fixtures_kafka import skipped_where_unavailable
from tests.support.otlp import read_metrics

pytestmark = pytest.mark.external

SOURCES = Path(__file__).resolve().parents[1] / "kafka" / "java"
OPTION_NAMES = Path(__file__).resolve().parents[1] / "unit" / "config" / "option_names"
SENT = "org.apache.kafka.producer.record.send.total"
TIMEOUT_S = 120


def program(version: str, source: str, *arguments: str) -> list[str]:
    """Return the command that runs a file of Java with the clients of a version."""
    with skipped_where_unavailable():
        return java(broker_class_path(version), str(SOURCES / source), arguments, FAST_START)


@pytest.mark.parametrize("version", [BROKER_VERSION, OLD_BROKER_VERSION])
def test_java_pushes_to_the_embedded_broker(version: str) -> None:
    with EmbeddedBroker(topics={"orders": 1}, client_metrics=True) as broker:
        subscribe(broker, interval_ms="100", metrics="*")
        command = program(version, "PushingProducer.java", broker.bootstrap_servers, "orders")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            for line in ("first\n", "second\n"):
                running.stdin.write(line)
                running.stdin.flush()
                assert running.stdout.readline() == line
            read: list[dict[str, Any]] = []
            pushes = pushes_until(broker, lambda pushes: has_sent(pushes, read, 2), TIMEOUT_S)
            running.stdin.close()
            assert running.wait(TIMEOUT_S) == 0
        pushes += broker.take_client_metrics()
    assert {push.client_id for push in pushes} == {"java"}
    assert len({push.instance_id for push in pushes}) == 1
    # The last push is Java's to lose: an idle sender thread ends at close() before it polls once more.
    assert not any(push.is_last for push in pushes[:-1])
    last = read_metrics(pushes[-1].metrics)
    assert "node_id=node-0" in last["org.apache.kafka.producer.node.request.latency.max"]["points"]
    assert last[SENT]["temporality"] == 1  # differences, as the broker asks


def has_sent(pushes: list[Any], read: list[dict[str, Any]], count: int) -> bool:
    """Decode what is new; whether the pushes report so many records together."""
    read += [read_metrics(push.metrics) for push in pushes[len(read) :]]
    return bool(sum(each[SENT]["points"][""] for each in read if SENT in each) == count)


def test_the_list_of_javas_options_is_complete() -> None:
    command = program(BROKER_VERSION, "OptionNames.java")
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    listed = (OPTION_NAMES / f"java-{BROKER_VERSION}.txt").read_text(encoding="utf-8").split()
    assert sorted(done.stdout.split()) == sorted(listed)
