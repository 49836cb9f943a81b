"""Fixtures shared by all tests; each group lives in its own module."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.kafka.cluster import live_clusters
from tests.support.broker.fixtures_broker import embedded_broker
from tests.support.kafka.fixtures_kafka import kafka, kafka3, kafka3_rig, kafka_rig, kafka_tools, topic_name
from tests.support.kafka.fixtures_mock_cluster import mock_cluster
from tests.support.kafka.fixtures_proxy import kafka3_proxies, kafka_proxy

# Runs share their examples and have no deadline: a loaded machine must not make a property fail.
settings.register_profile("kafkaprod", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kafkaprod")

__all__ = [
    "embedded_broker",
    "kafka",
    "kafka3",
    "kafka3_proxies",
    "kafka3_rig",
    "kafka_proxy",
    "kafka_rig",
    "kafka_tools",
    "mock_cluster",
    "topic_name",
]


def pytest_configure(config: pytest.Config) -> None:
    """Let kafka-python be imported, which reads its schemas with a deprecated call, and PySpark beside pandas 3."""
    # A shell's background jobs ignore Ctrl-C, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # PySpark says so in every session where pandas is installed; nothing here uses it through pandas.
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the end of each broker's output to the report of a failed test that used one."""
    report = yield
    if report.failed and item.get_closest_marker("external"):
        for cluster in live_clusters():
            for node_id in cluster.node_ids:
                report.sections.append((f"Kafka node {node_id}", cluster.output_tail(node_id)))
    return report
