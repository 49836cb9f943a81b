"""What the clients send to: the sink, or real Apache Kafka; each its own process, and both count what arrived.

Apache Kafka is started by ``python -m tests.kafka``, the command of the test rig: it needs Java and Maven.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.delay_proxy import DelayProxy
from benchmarks.sink import Sink

ROOT = Path(__file__).resolve().parent.parent
ONE_WAY_MS = 50.0
_WAIT_S = 60.0


class FarEnd(Protocol):
    """Where records go.

    Attributes:
        bootstrap: its addresses.
        description: for the table.
    """

    bootstrap: str
    description: str

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        """Make topics sure to exist within the block; may be called again for the same ones."""
        yield

    def arrived(self, topics: Mapping[str, int]) -> int:
        """Records these topics (names to partition counts) have taken so far."""


class SinkEnd:
    """The broker-less sink. Its topics are fixed when it starts."""

    def __init__(self, sink: Sink, description: str) -> None:
        self._sink = sink
        self.description = description
        self.bootstrap = sink.bootstrap

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        """Nothing to do."""
        yield

    def arrived(self, topics: Mapping[str, int]) -> int:
        """By its offsets."""
        offsets = self._sink.offsets()
        return sum(sum(offsets[name]) for name in topics)


class KafkaEnd:
    """Apache Kafka, reached at ``bootstrap``."""

    def __init__(self, bootstrap: str, description: str) -> None:
        self.bootstrap = bootstrap
        self.description = description
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        """Create the topics, keep at most a few megabytes of each partition, delete them at the end."""
        settings = {"segment.bytes": "16777216", "retention.bytes": "16777216", "file.delete.delay.ms": "0"}
        replicas = min(3, len(self._admin.list_topics(timeout=10).brokers))
        names = list(partition_counts)
        topics = [NewTopic(name, partition_counts[name], replicas, config=settings) for name in names]
        for future in self._admin.create_topics(topics, operation_timeout=30).values():
            future.result(30)
        self._wait_for_leaders(partition_counts)
        try:
            yield
        finally:
            for future in self._admin.delete_topics(names, operation_timeout=30).values():
                future.result(30)

    def arrived(self, topics: Mapping[str, int]) -> int:
        """By the end offsets. Raises RuntimeError if the brokers do not tell them."""
        wanted = {
            TopicPartition(name, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for name, count in topics.items()
            for partition in range(count)
        }
        try:
            return sum(future.result(30).offset for future in self._admin.list_offsets(wanted).values())
        except TimeoutError:
            raise RuntimeError(f"{self.description} did not tell its end offsets within 30 s") from None

    def _wait_for_leaders(self, partition_counts: Mapping[str, int]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self.arrived(partition_counts)
                return
            except KafkaException:  # not created yet, or no leader yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def far_end(name: str, partition_counts: Mapping[str, int]) -> Iterator[FarEnd]:
    """A far end of FAR_ENDS; the topics are those of a sink, which cannot create any later."""
    with FAR_ENDS[name](partition_counts) as end:
        yield end


@contextlib.contextmanager
def sink_end(partition_counts: Mapping[str, int]) -> Iterator[FarEnd]:
    """A sink with these topics."""
    with Sink(partition_counts) as sink:
        yield SinkEnd(sink, "broker-less sink")


@contextlib.contextmanager
def distant_sink_end(partition_counts: Mapping[str, int]) -> Iterator[FarEnd]:
    """A sink with these topics, ONE_WAY_MS away."""
    with DelayProxy(ONE_WAY_MS) as proxy, Sink(partition_counts, advertised=[proxy.port]) as sink:
        proxy.forward_to(sink.ports[0])
        yield SinkEnd(sink, f"broker-less sink, {2 * ONE_WAY_MS:g} ms round trip")


@contextlib.contextmanager
def kafka_end(nodes: int) -> Iterator[FarEnd]:
    """Apache Kafka with one or three nodes, for benchmarks: the JVM's optimizing compiler on."""
    command = [sys.executable, "-m", "tests.kafka", "--nodes", str(nodes), "--full-speed"]
    command += ["--property", "log.retention.check.interval.ms=2000"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("Apache Kafka did not start: see the error above")
        answer = json.loads(line)
        yield KafkaEnd(answer["bootstrap"], f"Apache Kafka {answer['version']}, {nodes} node{'s' * (nodes > 1)}")
    finally:
        process.stdin.close()
        process.wait(_WAIT_S)
        process.stdout.close()


FAR_ENDS: Mapping[str, Callable[[Mapping[str, int]], contextlib.AbstractContextManager[FarEnd]]] = {
    "sink": sink_end,
    "distant": distant_sink_end,
    "kafka1": lambda _: kafka_end(1),
    "kafka3": lambda _: kafka_end(3),
}
