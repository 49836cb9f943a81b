"""Apache Kafka's own command line tools, with the Java clients in them, against the embedded broker."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from kafkaprod import Producer
from kafkaprod.broker.coordinator.classic_records import encode_key
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.runtime import FAST_START, java, run_java
from tests.support.broker.fixtures_broker import wait_until

pytestmark = pytest.mark.external

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TIMEOUT_S = 120

Tool = Callable[..., str]


@pytest.fixture
def tool(kafka_tools: str, embedded_broker: EmbeddedBroker) -> Tool:
    """Run a tool to its end and return what it printed."""

    def run(main_class: str, *arguments: str) -> str:
        servers = ["--bootstrap-server", embedded_broker.bootstrap_servers]
        return run_java(kafka_tools, main_class, [*servers, *arguments], timeout_s=TIMEOUT_S)

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
        timeout_s=TIMEOUT_S,
    )
    assert "5000 records sent" in produced

    read = ["--topic", topic_name, "--group", topic_name, "--from-beginning", "--max-messages", "5000"]
    consumed = tool(CONSOLE_CONSUMER, *read, "--timeout-ms", "60000")
    assert [len(line) for line in consumed.splitlines()] == [100] * 5000

    shown = tool(CONSUMER_GROUPS, "--describe", "--group", topic_name)
    rows = [line.split() for line in shown.splitlines() if line.split()[:2] == [topic_name, topic_name]]
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 5000
    assert topic_name in tool(CONSUMER_GROUPS, "--list").split()

    ends = tool("org.apache.kafka.tools.GetOffsetShell", "--topic", topic_name)
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.splitlines()) == 5000
    tool(CONSUMER_GROUPS, "--delete", "--group", topic_name)
    tool(topics, "--delete", "--topic", topic_name)
    assert topic_name not in tool(topics, "--list").split()


class Member:
    """A console consumer process; prints `Partition:p	Offset:o	value` a record, commits at its end."""

    def __init__(self, class_path: str, broker: EmbeddedBroker, topic: str, directory: Path) -> None:
        self._out = directory / "out"
        directory.mkdir()
        servers = ["--bootstrap-server", broker.bootstrap_servers]
        printing = ["--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true"]
        group = ["--group", f"group-of-{topic}", "--command-property", "heartbeat.interval.ms=300"]
        start = ["--topic", topic, "--command-property", "auto.offset.reset=earliest"]
        with self._out.open("wb") as out, (directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                java(class_path, CONSOLE_CONSUMER, [*servers, *printing, *group, *start], FAST_START),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

    def records(self) -> list[tuple[int, int, str]]:
        """(partition, offset, value) of each record it has read."""
        lines = self._out.read_text().split("\n")[:-1]  # what follows the last newline is half written
        cells = [line.split("\t") for line in lines]
        return [(int(partition[10:]), int(offset[7:]), value) for partition, offset, value in cells]

    def close(self) -> None:
        """Commit and leave the group. Idempotent."""
        self._process.terminate()
        self._process.wait(TIMEOUT_S)


@pytest.fixture
def open_member(
    kafka_tools: str, embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> Iterator[Callable[[], Member]]:
    """Open members of one group; all are closed at the end."""
    members: list[Member] = []

    def open_one() -> Member:
        members.append(Member(kafka_tools, embedded_broker, topic_name, tmp_path / str(len(members))))
        return members[-1]

    yield open_one
    for member in members:
        member.close()


class Row(NamedTuple):
    """What `kafka-consumer-groups --describe` says of one partition."""

    committed: int
    end: int
    member: str


def describe_group(tool: Tool, topic: str) -> dict[int, Row]:
    """Rows by partition."""
    shown = tool(CONSUMER_GROUPS, "--describe", "--group", f"group-of-{topic}", "--timeout", "30000")
    rows = [line.split() for line in shown.splitlines()]
    return {
        int(row[2]): Row(-1 if row[3] == "-" else int(row[3]), int(row[4]), row[6]) for row in rows if topic in row[1:2]
    }


def test_three_java_console_consumers_share_the_partitions_rebalance_and_resume(
    tool: Tool, kafka_tools: str, embedded_broker: EmbeddedBroker, topic_name: str, open_member: Callable[[], Member]
) -> None:
    admin = AdminClient({"bootstrap.servers": embedded_broker.bootstrap_servers})

    def shares() -> list[int]:
        """Sizes of the members' shares, as the coordinator knows them."""
        group = f"group-of-{topic_name}"
        described = admin.describe_consumer_groups([group])[group].result(timeout=TIMEOUT_S)
        return sorted(len(member.assignment.topic_partitions) for member in described.members)

    def wait_for_shares(expected: list[int], what: str) -> None:
        wait_until(lambda: pause() or shares() == expected, what)

    values = console_produce(kafka_tools, embedded_broker, topic_name, range(300))
    members = [open_member() for _ in range(3)]
    wait_for_shares([1, 1, 1], "a partition each")
    values |= console_produce(kafka_tools, embedded_broker, topic_name, range(300, 600))

    def all_is_read() -> bool:
        pause()
        return {value for member in members for _, _, value in member.records()} == values

    wait_until(all_is_read, "every record")
    shown = describe_group(tool, topic_name)
    assert sorted(shown) == [0, 1, 2]
    assert len({row.member for row in shown.values()}) == 3
    assert sum(row.end for row in shown.values()) == 600
    read = {record for member in members for record in member.records()}
    assert sorted((partition, offset) for partition, offset, _ in read) == sorted(
        (partition, offset) for partition, row in shown.items() for offset in range(row.end)
    )

    members.pop().close()
    wait_for_shares([1, 2], "two take over")
    for member in members:
        member.close()
    assert {partition: (row.committed, row.member) for partition, row in describe_group(tool, topic_name).items()} == {
        partition: (row.end, "-") for partition, row in shown.items()
    }

    later = console_produce(kafka_tools, embedded_broker, topic_name, range(600, 630))
    resumed = open_member()
    wait_until(lambda: pause() or len(resumed.records()) >= 30, "the records produced since the commit")
    assert sorted(value for _, _, value in resumed.records()) == sorted(later)


def console_produce(class_path: str, broker: EmbeddedBroker, topic: str, values: range) -> set[str]:
    """Give lines to the Java console producer, spread over the partitions by their keys; return the values."""
    options = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    done = subprocess.run(
        java(class_path, CONSOLE_PRODUCER, [*options, *keyed], FAST_START),
        input="".join(f"key-{value}:{value}\n" for value in values),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {str(value) for value in values}


def pause() -> bool:
    """Let the members work, between two looks at what they have done."""
    return threading.Event().wait(0.1)


def test_java_reads_a_group_of_the_consumer_protocol_and_its_records(
    kafka_tools: str, topic_name: str, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    with EmbeddedBroker(topics={topic_name: 2}, data_dir=str(data_dir)) as broker:
        values = console_produce(kafka_tools, broker, topic_name, range(50))
        servers = ["--bootstrap-server", broker.bootstrap_servers]
        protocol = ["--command-property", "group.protocol=consumer", "--from-beginning"]
        read = ["--topic", topic_name, "--group", "g", "--max-messages", "50", "--timeout-ms", "60000"]
        consumed = run_java(kafka_tools, CONSOLE_CONSUMER, [*servers, *read, *protocol], timeout_s=TIMEOUT_S)
        assert set(consumed.split()) == values
        shown = run_java(kafka_tools, CONSUMER_GROUPS, [*servers, "--list", "--type"], timeout_s=TIMEOUT_S)
        assert ["g", "Consumer"] in [line.split() for line in shown.splitlines()]
        (log,) = (data_dir / "__consumer_offsets-0").glob("*.log")
        dumped = run_java(kafka_tools, DUMP_LOG, ["--files", str(log), "--offsets-decoder"], timeout_s=TIMEOUT_S)
    kinds = {int(kind) for kind in re.findall(r'key: \{"type":"?(\d+)', dumped)}
    assert {3, 5, 6, 7, 8} <= kinds, dumped
    assert "Could not" not in dumped
    assert topic_name in dumped


def test_a_java_consumer_stays_in_its_group_over_a_restart(kafka_tools: str, tmp_path: Path) -> None:
    """It goes on with its partition in the same generation; Kafka's own tool reads that from the group's records."""
    log = tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
    generations: list[int] = []
    with EmbeddedBroker(tmp_path / "data", topics={"orders": 1}) as broker:
        member = Member(kafka_tools, broker, "orders", tmp_path / "member")
        try:
            for number, end in enumerate((broker.stop, broker.kill, None)):
                with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                    producer.send("orders", b"%d" % number).result(TIMEOUT_S)
                wait_until(lambda: len(member.records()) > number, "the record")  # noqa: B023
                generations.append(log.read_bytes().count(encode_key("group-of-orders")))
                if end is not None:
                    end()
                    broker.start()
        finally:
            member.close()
        assert member.records() == [(0, number, str(number)) for number in range(3)]
        assert len(set(generations)) == 1, generations
        broker.stop()
        dumped = run_java(kafka_tools, DUMP_LOG, ["--files", str(log), "--offsets-decoder"], timeout_s=TIMEOUT_S)
    groups = [json.loads(found)["data"] for found in re.findall(r'payload: (\{.*"generation".*\})', dumped)]
    wanted = [(generation, 1) for generation in range(1, generations[0] + 1)] + [(generations[0] + 1, 0)]
    assert [(group["generation"], len(group["members"])) for group in groups] == wanted
    assert groups[0]["protocolType"] == "consumer"
