"""Other clients beside a sick broker: confluent-kafka, and the programs of the Java producer and franz-go."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.macro.sick_tally import (
    AFTER_S,
    GRACE_S,
    MEMORY,
    PARTITIONS,
    RATE,
    SECONDS,
    VALUE,
    WARM_S,
    Cluster,
    Run,
    Tally,
    schedule,
)
from benchmarks.peers.build import sick_command

END_S = 30  # that a program may take to end
NAMES = {"java": "Java producer", "go": "franz-go"}


@contextmanager
def program(client: str, cluster: Cluster, topic: str, partitions: list[int]) -> Iterator[Run]:
    """Start a program, and wait until it has its metadata; what is yielded lets it send, and reads what it prints."""
    window = (WARM_S + GRACE_S, SECONDS, AFTER_S)
    command = [
        *sick_command(client),
        *(cluster.bootstrap_servers, topic, str(MEMORY), str(RATE), str(len(VALUE)), *map(str, window)),
        *map(str, partitions),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            if running.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{client} does not start")

            def run(tally: Tally) -> None:
                healthy = " ".join(map(str, sorted(tally.healthy))) if partitions else ""
                printed, _ = running.communicate(f"{healthy}\n", WARM_S + GRACE_S + SECONDS + END_S)
                found = json.loads(printed)
                print(f"{NAMES[client]} {found['version']}", file=sys.stderr)
                tally.latencies = [ms / 1000 for ms in found["latencies_ms"]]
                tally.longest_s = found["longest_ms"] / 1000

            yield run
        finally:
            running.kill()


@contextmanager
def java_without_keys(cluster: Cluster, topic: str, sick_id: int) -> Iterator[Run]:
    """Java producer, without keys."""
    with program("java", cluster, topic, []) as run:
        yield run


@contextmanager
def java_with_partitions(cluster: Cluster, topic: str, sick_id: int) -> Iterator[Run]:
    """Java producer, with partitions, one thread."""
    with program("java", cluster, topic, list(range(PARTITIONS))) as run:
        yield run


@contextmanager
def franz_without_keys(cluster: Cluster, topic: str, sick_id: int) -> Iterator[Run]:
    """franz-go, without keys."""
    with program("go", cluster, topic, []) as run:
        yield run


@contextmanager
def franz_with_partitions(cluster: Cluster, topic: str, sick_id: int) -> Iterator[Run]:
    """franz-go, with partitions, one goroutine."""
    with program("go", cluster, topic, list(range(PARTITIONS))) as run:
        yield run


def confluent(cluster: Cluster, tally: Tally, partitions: list[int]) -> None:
    """Send with confluent-kafka; a full queue drops the record."""
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "queue.buffering.max.kbytes": MEMORY >> 10,
            "enable.idempotence": True,
        }
    )
    for number, due in schedule(tally, RATE):
        partition = partitions[number % len(partitions)]
        began = time.monotonic()
        try:
            producer.produce(
                tally.topic,
                VALUE,
                partition=partition,
                on_delivery=lambda error, message, due=due: error or tally.acknowledged(message.partition(), due),
            )
        except BufferError:
            producer.poll(0)
            continue
        tally.called(partition, due, began)
        producer.poll(0)
    producer.flush(AFTER_S)
    producer.purge()
    producer.flush(1)


def confluent_without_keys(cluster: Cluster, tally: Tally) -> None:
    """confluent-kafka, without keys."""
    confluent(cluster, tally, [-1])


def confluent_with_partitions(cluster: Cluster, tally: Tally) -> None:
    """confluent-kafka, with partitions."""
    confluent(cluster, tally, list(range(PARTITIONS)))
