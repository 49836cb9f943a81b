"""Apache Kafka's own command line tools, with the Java clients in them, against the embedded broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkaprod.broker.embedded import EmbeddedBroker
from tests.kafka.runtime import run_java

pytestmark = pytest.mark.external

Tool = Callable[..., str]


@pytest.fixture
def tool(kafka_tools: str, embedded_broker: EmbeddedBroker) -> Tool:
    """Run a tool to its end and return what it printed."""

    def run(main_class: str, *arguments: str) -> str:
        servers = ["--bootstrap-server", embedded_broker.bootstrap_servers]
        return run_java(kafka_tools, main_class, [*servers, *arguments], timeout_s=120)

    return run


def test_java_tools_administer_produce_consume_and_show_the_group(
    tool: Tool, kafka_tools: str, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    topics = "org.apache.kafka.tools.TopicCommand"
    tool(topics, "--create", "--topic", topic_name, "--partitions", "2", "--config", "retention.ms=86400000")
    assert topic_name in tool(topics, "--list").split()
    described = tool(topics, "--describe", "--topic", topic_name)
    assert "PartitionCount: 2" in described
    assert "retention.ms=86400000" in described

    servers = f"bootstrap.servers={embedded_broker.bootstrap_servers}"
    load = ["--topic", topic_name, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"]
    produced = run_java(
        kafka_tools,
        "org.apache.kafka.tools.ProducerPerformance",
        [*load, "--producer-props", servers, "acks=all", "compression.type=lz4"],
        timeout_s=120,
    )
    assert "5000 records sent" in produced

    read = ["--topic", topic_name, "--group", topic_name, "--from-beginning", "--max-messages", "5000"]
    consumed = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *read, "--timeout-ms", "60000")
    assert [len(line) for line in consumed.splitlines()] == [100] * 5000

    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    shown = tool(groups, "--describe", "--group", topic_name)
    rows = [line.split() for line in shown.splitlines() if line.split()[:2] == [topic_name, topic_name]]
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 5000
    assert topic_name in tool(groups, "--list").split()

    ends = tool("org.apache.kafka.tools.GetOffsetShell", "--topic", topic_name)
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.splitlines()) == 5000
    tool(groups, "--delete", "--group", topic_name)
    tool(topics, "--delete", "--topic", topic_name)
    assert topic_name not in tool(topics, "--list").split()
