"""Start and memory of an embedded cluster beside those of other clusters for tests.

`python -m benchmarks.macro.clusters_beside [embedded] [mock] [kfake] [kafka]` starts three brokers of each in turn: the
embedded cluster, librdkafka's mock (in the client's process), franz-go's kfake (Go), Apache Kafka (three JVMs; Maven).
It prints medians: seconds from nothing until a client sees all three brokers, and leaders of 50 partitions; the
proportional memory of all processes then; for those whose brokers can die, milliseconds from kill -9 until both others
name a new leader, and from the start of the process until it answers ApiVersions to a client, and until clients see all
partitions in sync; for the embedded cluster also until it listens. Our modules are compiled first, as pip does at an
installation: without that each process compiles them again where PYTHONDONTWRITEBYTECODE is set. The load average is
printed beside: on a busy machine wall times say little, unless the scheduler prefers this program (`chrt -r 10`).
"""

from __future__ import annotations

import compileall
import contextlib
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

import kafkaprod
from benchmarks.macro.cluster_start import await_answer, memory_mib
from benchmarks.peers.build import command
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.kafka.cluster import KafkaCluster

ROUNDS = 3
BROKERS = 3
PARTITIONS = 50
DEATHS = 3
TOPIC = "measured"
LIMIT_S = 120.0
_METADATA_VERSION = 8

_MOCK = """
import sys
from tests.support.kafka.fixtures_mock_cluster import MockCluster
from benchmarks.macro.cluster_start import memory_mib
before = memory_mib("self")
cluster = MockCluster(3)
cluster.create_topic("{topic}", {partitions}, 3)
print(cluster.bootstrap, flush=True)
sys.stdin.readline()
print(memory_mib("self") - before, flush=True)
"""


@dataclass
class Running:
    """Three brokers that run.

    Attributes:
        has_topic: Whether the topic is there from the start.
        memory: Of all processes, in MiB.
        kill: Kills a broker; None where none can die.
        start: Starts it again.
        address: Where a broker listens; needed where they can die.
        is_listening: Whether it listens when `start` returns.
        pids: Of all processes; none where they are not the cluster's alone.
    """

    servers: str
    memory: Callable[[], float]
    has_topic: bool = False
    kill: Callable[[int], object] | None = None
    start: Callable[[int], object] | None = None
    address: Callable[[int], tuple[str, int]] = lambda _: ("", 0)
    is_listening: bool = False
    pids: Callable[[], list[int]] = list


@contextlib.contextmanager
def embedded() -> Iterator[Running]:
    """Run the embedded cluster."""
    with EmbeddedCluster(brokers=BROKERS) as cluster:

        def pids() -> list[int]:
            return list(cluster.ask({"command": "processes"})["pids"].values())

        yield Running(
            cluster.bootstrap_servers,
            lambda: sum(map(memory_mib, pids())),
            pids=pids,
            kill=lambda node: cluster.broker(node).kill(),
            start=lambda node: cluster.broker(node).start(),
            address=lambda node: ("127.0.0.1", cluster.broker(node).port),
            is_listening=True,
        )


@contextlib.contextmanager
def mock() -> Iterator[Running]:
    """Run librdkafka's mock in a process; its memory is what the process grows by."""
    program = [sys.executable, "-c", _MOCK.format(topic=TOPIC, partitions=PARTITIONS)]
    with _process(program) as (process, servers):

        def memory() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield Running(servers, memory, has_topic=True)


@contextlib.contextmanager
def kfake() -> Iterator[Running]:
    """Run franz-go's fake cluster."""
    with _process([*command("kfake"), TOPIC, str(PARTITIONS)]) as (process, servers):
        yield Running(servers, lambda: memory_mib(process.pid), has_topic=True)


@contextlib.contextmanager
def kafka() -> Iterator[Running]:
    """Run three nodes of Apache Kafka."""
    with KafkaCluster(BROKERS) as cluster:
        yield Running(
            cluster.bootstrap(),
            lambda: sum(memory_mib(cluster.pid(node)) for node in cluster.node_ids),
            pids=lambda: [cluster.pid(node) for node in cluster.node_ids],
            kill=cluster.kill9,
            start=cluster.start_node,
            address=cluster.address,
        )


@contextlib.contextmanager
def _process(program: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program that prints its addresses, and ends with its standard input."""
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.communicate()


CLUSTERS = {"embedded": embedded, "mock": mock, "kfake": kfake, "kafka": kafka}


def leaders(admin: AdminClient) -> dict[int, tuple[int, int]]:
    """Return leader and size of the ISR of each partition."""
    topic = admin.list_topics(timeout=10).topics.get(TOPIC)
    return {} if topic is None else {index: (each.leader, len(each.isrs)) for index, each in topic.partitions.items()}


def await_true(condition: Callable[[], bool], limit_s: float = LIMIT_S, pause_s: float = 0.001) -> None:
    """Ask again and again until something is true.

    Raises:
        TimeoutError: It does not become true.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {limit_s:.0f} s")
        time.sleep(pause_s)


def measure(name: str) -> dict[str, float]:
    """Start a cluster, and measure it."""
    started = time.perf_counter()
    with CLUSTERS[name]() as running:
        admin = AdminClient({"bootstrap.servers": running.servers, "log_level": 0})
        await_true(lambda: len(admin.list_topics(timeout=10).brokers) == BROKERS)
        found = {"start s": time.perf_counter() - started}
        if not running.has_topic:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(LIMIT_S)
        await_true(lambda: len([1 for leader, _ in leaders(admin).values() if leader >= 0]) == PARTITIONS)
        found[f"start and {PARTITIONS} partitions s"] = time.perf_counter() - started
        found["memory MiB"] = running.memory()
        if running.kill is not None and running.start is not None:
            deaths = [_death(running, running.kill, running.start) for _ in range(DEATHS)]
            medians = [statistics.median(times) for times in zip(*deaths, strict=True)]
            found["kill to new leader ms"] = medians[0]
            if running.is_listening:
                found["start to listening ms"] = medians[1]
            found["start to answering ms"], found["start to in sync ms"] = medians[2:]
    return found


def _death(
    running: Running, kill: Callable[[int], object], start: Callable[[int], object]
) -> tuple[float, float, float, float]:
    """Kill the leader of the first partition and start it again.

    Returns:
        Milliseconds from the kill to a new leader, and from the start to the end of its call, to an answer to
        ApiVersions, and to all in sync.
    """
    admin = AdminClient({"bootstrap.servers": running.servers, "log_level": 0})
    dead = leaders(admin)[0][0]
    others = [running.address(node) for node in admin.list_topics(timeout=10).brokers if node != dead]
    with connected(others) as socks:
        begun = time.perf_counter()
        kill(dead)
        await_true(lambda: all(leader_of(sock) not in (-1, dead) for sock in socks))
        failover_ms = 1000 * (time.perf_counter() - begun)
    begun = time.perf_counter()
    start(dead)
    start_ms = 1000 * (time.perf_counter() - begun)
    await_answer(running.address(dead))
    answer_ms = 1000 * (time.perf_counter() - begun)
    await_true(lambda: all(count == BROKERS for _, count in leaders(admin).values()))
    return failover_ms, start_ms, answer_ms, 1000 * (time.perf_counter() - begun)


@contextlib.contextmanager
def connected(addresses: list[tuple[str, int]]) -> Iterator[list[socket.socket]]:
    """Connect to brokers."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address)) for address in addresses]


def leader_of(sock: socket.socket) -> int:
    """Ask a broker who leads the first partition. A client library would ask another broker at its own pace."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]).encode(_METADATA_VERSION)
    header = struct.pack(">hhih", ApiKey.METADATA, _METADATA_VERSION, 0, -1)
    sock.sendall(struct.pack(">i", len(header) + len(request)) + header + request)
    (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    answer = memoryview(sock.recv(size, socket.MSG_WAITALL))[4:]  # behind the correlation id
    partitions = MetadataResponse.decode(answer, _METADATA_VERSION).topics[0].partitions
    return next(each.leader_id for each in partitions if each.partition_index == 0)


def main() -> None:
    """Print the medians of each cluster."""
    compileall.compile_dir(os.path.dirname(kafkaprod.__file__), quiet=1)
    for name in sys.argv[1:] or CLUSTERS:
        rounds = [measure(name) for _ in range(1 if name == "kafka" else ROUNDS)]
        for figure in rounds[0]:
            values = [each[figure] for each in rounds]
            print(f"{name:10} {figure:32} {statistics.median(values):10.2f}  ({min(values):.2f}-{max(values):.2f})")
        print(f"{name:10} {'load average':32} {os.getloadavg()[0]:10.2f}", flush=True)


if __name__ == "__main__":
    main()
