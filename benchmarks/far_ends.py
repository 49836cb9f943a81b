"""What the clients send to: the sink, or real Apache Kafka; each its own process, and both count what arrived.

Apache Kafka is started by ``python -m tests.kafka``, the command of the test rig: it needs Java and Maven.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from benchmarks.delay_proxy import DelayProxy
from benchmarks.sink import Sink
from benchmarks.tls_proxy import TlsProxy

ROOT = Path(__file__).resolve().parent.parent
ONE_WAY_MS = 50.0
_WAIT_S = 60.0


class FarEnd(Protocol):
    """Where records go.

    Attributes:
        bootstrap: its addresses.
        description: for the table.
        tls_ca: file of the authority that its certificate is checked with; empty: connections are plain.
    """

    bootstrap: str
    tls_ca: str
    description: str

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        """Make topics sure to exist within the block; may be called again for the same ones."""
        yield

    def arrived(self, topics: Mapping[str, int]) -> int:
        """Records these topics (names to partition counts) have taken so far."""


class SinkEnd:
    """The broker-less sink. Its topics are fixed when it starts."""

    def __init__(self, sink: Sink, description: str, tls_ca: str = "") -> None:
        self.sink = sink
        self.tls_ca = tls_ca
        self.description = description
        self.bootstrap = sink.bootstrap

    @contextlib.contextmanager
    def topics(self, partition_counts: Mapping[str, int]) -> Iterator[None]:
        """Nothing to do."""
        yield

    def arrived(self, topics: Mapping[str, int]) -> int:
        """By its offsets."""
        offsets = self.sink.offsets()
        return sum(sum(offsets[name]) for name in topics)


@contextlib.contextmanager
def far_end(name: str, partition_counts: Mapping[str, int]) -> Iterator[FarEnd]:
    """A far end of FAR_ENDS; the topics are those of a sink, which cannot create any later."""
    with FAR_ENDS[name](partition_counts) as end:
        yield end


@contextlib.contextmanager
def sink_end(partition_counts: Mapping[str, int]) -> Iterator[SinkEnd]:
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
def tls_sink_end(partition_counts: Mapping[str, int]) -> Iterator[FarEnd]:
    """A sink with these topics behind TLS."""
    from tests.support.net.certificates import Authority  # its library is not there for every Python either

    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        pem = authority.issue("sink", ["127.0.0.1"])
        with TlsProxy(pem.certfile, pem.keyfile) as proxy, Sink(partition_counts, advertised=[proxy.port]) as sink:
            proxy.forward_to(sink.ports[0])
            yield SinkEnd(sink, "broker-less sink behind TLS 1.3", str(authority.cafile))


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
        from benchmarks.kafka_far_end import KafkaEnd  # its library is not there for every Python that the sink runs on

        yield KafkaEnd(answer["bootstrap"], f"Apache Kafka {answer['version']}, {nodes} node{'s' * (nodes > 1)}")
    finally:
        process.stdin.close()
        process.wait(_WAIT_S)
        process.stdout.close()


FAR_ENDS: Mapping[str, Callable[[Mapping[str, int]], contextlib.AbstractContextManager[FarEnd]]] = {
    "sink": sink_end,
    "distant": distant_sink_end,
    "tls": tls_sink_end,
    "kafka1": lambda _: kafka_end(1),
    "kafka3": lambda _: kafka_end(3),
}
