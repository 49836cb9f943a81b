"""What one sick broker of three does to records for the others: it hangs, runs at 1 % of its speed, or is dead.

`python -m benchmarks.macro.sick` prints a table, beside confluent-kafka in the same run:

- goodput: records acknowledged, of those that the program meant to send (RATE a second), in % ; with a partition of its
  own for each record, only those of healthy brokers count, without one all do;
- longest call: the longest `send()` (list, columns) of a record for a healthy partition, in ms;
- p99: from when a record was to be sent to its acknowledgement, in ms, of those that were acknowledged.

With `--kafka` the brokers are Apache Kafka's (KRaft, one replica a partition), of the version that the tests take.

The broker becomes sick after WARM_S; SECONDS are measured from GRACE_S later on: until then nobody can know it.
The memory is small, so that the sick broker's records use their share up while it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kafkaprod import AsyncProducer, Column, Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.errors import BufferFullError, ProducerClosedError

PARTITIONS = 6
RATE = 3_000  # records a second
LIST = 60  # records of a list, or of columns
VALUE = b"x" * 1000
WARM_S, GRACE_S, SECONDS, AFTER_S = 1.0, 2.5, 8.0, 0.5
MEMORY = 6 << 20
OPTIONS = {"buffer_memory": MEMORY, "linger_ms": 5}


class Broker(Protocol):
    """One of the three."""

    id: int

    def pause(self) -> Any:
        """Stop its process."""

    def resume(self) -> None:
        """Let it go on."""

    def kill(self) -> None:
        """End it at once."""


class Cluster(Protocol):
    """Three brokers: embedded ones, or Apache Kafka's."""

    bootstrap_servers: str

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the broker that leads a partition."""


@dataclass
class KafkaBroker:
    """A node of Apache Kafka."""

    cluster: Any
    id: int

    def pause(self) -> None:
        """Stop its process."""
        self.cluster.sigstop(self.id)

    def resume(self) -> None:
        """Let it go on."""
        self.cluster.sigcont(self.id)

    def kill(self) -> None:
        """End it at once."""
        self.cluster.kill9(self.id)


class Kafka:
    """Three nodes of Apache Kafka, for the faults of one way in turn, the dead one last; a topic for each."""

    def __init__(self, stack: ExitStack) -> None:
        from tests.kafka.cluster import KafkaCluster

        self._cluster = stack.enter_context(
            KafkaCluster(3, full_speed=True, overrides={"broker.session.timeout.ms": 120_000})
        )
        self.bootstrap_servers = self._cluster.bootstrap()

    def begin(self, topic: str) -> None:
        """Create a topic."""
        self._cluster.create_topic(topic, PARTITIONS, replication_factor=1)

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the node that leads a partition."""
        return KafkaBroker(self._cluster, self._cluster.leader(topic, partition))


class Tally:
    """What became of the records of one run."""

    def __init__(self, topic: str, healthy: set[int], counts_all: bool) -> None:
        self.topic, self.healthy, self.counts_all = topic, healthy, counts_all
        self.first = time.monotonic() + WARM_S + GRACE_S
        self.end = self.first + SECONDS
        self.latencies: list[float] = []
        self.longest_s = 0.0

    def counts(self, partition: int | None, due: float) -> bool:
        """Whether a record belongs to what is measured."""
        return self.first <= due < self.end and (self.counts_all or partition in self.healthy)

    def called(self, partition: int | None, due: float, began: float) -> None:
        """Note how long a call took."""
        if self.counts(partition, due):
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def acknowledged(self, partition: int | None, due: float, count: int = 1) -> None:
        """Note that records were acknowledged, if that was in time."""
        now = time.monotonic()
        if self.counts(partition, due) and now < self.end + AFTER_S:
            self.latencies += [now - due] * count

    def settled(self, done: Any, partition: int | None, due: float) -> None:
        """Note the outcome of one record."""
        if done.exception() is None:
            self.acknowledged(partition, due)

    def row(self) -> tuple[float, float, float]:
        """Goodput in %, longest call and p99 in ms."""
        meant = RATE * SECONDS * (1 if self.counts_all else len(self.healthy) / PARTITIONS)
        ordered = sorted(self.latencies) or [0.0]
        return 100 * len(self.latencies) / meant, self.longest_s * 1000, ordered[int(len(ordered) * 0.99)] * 1000


def schedule(tally: Tally, rate: float) -> Iterator[tuple[int, float]]:
    """Yield numbers, each when it is due; what a wait has missed is left out."""
    begin, number = tally.first - WARM_S - GRACE_S, 0
    while True:
        due = begin + number / rate
        now = time.monotonic()
        if now >= tally.end:
            return
        if due > now:
            time.sleep(due - now)
        elif now - due > 1:
            number += int((now - due) * rate)
            continue
        yield number, due
        number += 1


def send_each(cluster: Cluster, tally: Tally, rate: float, partitions: list[int | None], **more: Any) -> None:
    """Send single records from one thread for each list of partitions."""
    with closing(Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS, **more)) as producer:
        run_threads([lambda: send_loop(producer, tally, rate, partitions)])


def send_loop(producer: Producer, tally: Tally, rate: float, partitions: list[int | None]) -> None:
    """Send single records to these partitions in turn."""
    for number, due in schedule(tally, rate):
        partition = partitions[number % len(partitions)]
        began = time.monotonic()
        try:
            future = producer.send(tally.topic, VALUE, partition=partition)
        except BufferFullError:
            continue
        except ProducerClosedError:
            return  # it waited for the sick broker to the end
        tally.called(partition, due, began)
        future.add_done_callback(partial(tally.settled, partition=partition, due=due))


def one_thread(cluster: Cluster, tally: Tally) -> None:
    """send, with partitions, one thread, isolate."""
    send_each(cluster, tally, RATE, list(range(PARTITIONS)), buffer_full_policy="isolate")


def without_keys(cluster: Cluster, tally: Tally) -> None:
    """send, without keys."""
    send_each(cluster, tally, RATE, [None])


def six_threads(cluster: Cluster, tally: Tally) -> None:
    """send, with partitions, a thread each."""
    with closing(Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)) as producer:
        rate = RATE / PARTITIONS
        run_threads([lambda p=p: send_loop(producer, tally, rate, [p]) for p in range(PARTITIONS)])


def blocks(cluster: Cluster, tally: Tally, send: Callable[[Producer], Any]) -> None:
    """Send blocks without keys."""
    with closing(Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)) as producer:
        for _, due in schedule(tally, RATE / LIST):
            began = time.monotonic()
            try:
                result = send(producer)
            except BufferFullError:
                continue
            tally.called(None, due, began)
            result.add_done_callback(lambda done, due=due: tally.acknowledged(None, due, LIST - done.failed_count))


def lists(cluster: Cluster, tally: Tally) -> None:
    """send_many, without keys."""
    values = [VALUE] * LIST
    blocks(cluster, tally, lambda producer: producer.send_many(tally.topic, values))


def columns(cluster: Cluster, tally: Tally) -> None:
    """send_columns, without keys."""
    values = Column.from_list([VALUE] * LIST, "values")
    blocks(cluster, tally, lambda producer: producer.send_columns(tally.topic, values))


def tasks(cluster: Cluster, tally: Tally) -> None:
    """asyncio, with partitions, a task each."""

    async def send(producer: AsyncProducer, partition: int) -> None:
        rate, number, begin = RATE / PARTITIONS, 0, tally.first - WARM_S - GRACE_S
        while time.monotonic() < tally.end:
            due = begin + number / rate
            await asyncio.sleep(due - time.monotonic())
            began = time.monotonic()
            future = await producer.send(tally.topic, VALUE, partition=partition)
            tally.called(partition, due, began)
            future.add_done_callback(partial(tally.settled, partition=partition, due=due))
            number += 1

    async def run() -> None:
        producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)
        running = [asyncio.create_task(send(producer, partition)) for partition in range(PARTITIONS)]
        await asyncio.sleep(tally.end + AFTER_S - time.monotonic())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await producer.close(0)

    asyncio.run(run())


def peer(cluster: Cluster, tally: Tally, partitions: list[int]) -> None:
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


def peer_without_keys(cluster: Cluster, tally: Tally) -> None:
    """confluent-kafka, without keys."""
    peer(cluster, tally, [-1])


def peer_with_partitions(cluster: Cluster, tally: Tally) -> None:
    """confluent-kafka, with partitions."""
    peer(cluster, tally, list(range(PARTITIONS)))


@contextmanager
def closing(producer: Producer) -> Iterator[Producer]:
    """Give answers a little time, then end without waiting for the sick broker."""
    try:
        yield producer
        time.sleep(AFTER_S)
    finally:
        producer.close(0)


def run_threads(loops: list[Callable[[], None]]) -> None:
    """Run loops on threads of their own until they are over, but not for one that a sick broker holds up."""
    threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    end = time.monotonic() + WARM_S + GRACE_S + SECONDS
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0) + AFTER_S)


@contextmanager
def sick(broker: Broker, fault: str) -> Iterator[None]:
    """Make a broker sick after WARM_S."""
    is_over = threading.Event()

    def run() -> None:
        if is_over.wait(WARM_S) or fault == "none":
            return
        if fault == "dead":
            broker.kill()
        while fault != "dead":
            broker.pause()
            if is_over.wait(0.099 if fault == "at 1 %" else None):
                break
            broker.resume()
            if is_over.wait(0.001):
                break
        if fault != "dead":
            broker.resume()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


WAYS = (without_keys, lists, columns, one_thread, six_threads, tasks, peer_without_keys, peer_with_partitions)
KEYLESS = {without_keys, lists, columns, peer_without_keys}
FAULTS = ("none", "hangs", "at 1 %", "dead")


Way = Callable[[Cluster, Tally], None]


def measure(kafka: Kafka | None, way: Way, fault: str) -> tuple[float, float, float]:
    """Run one way with one fault: on Kafka, or in an embedded cluster of its own."""
    with ExitStack() as stack:
        topic = f"{way.__name__}-{fault.replace(' ', '-').replace('%', 'percent')}"
        cluster: Cluster
        if kafka is None:
            embedded = cluster = stack.enter_context(EmbeddedCluster(brokers=3, session_timeout_ms=120_000))
            embedded.create_topic(topic, PARTITIONS, replication_factor=1)
        else:
            cluster = kafka
            kafka.begin(topic)
        broker = cluster.leader(topic, 0)
        healthy = {p for p in range(PARTITIONS) if fault == "none" or cluster.leader(topic, p).id != broker.id}
        tally = Tally(topic, healthy, way in KEYLESS)
        with sick(broker, fault):
            way(cluster, tally)
        return tally.row()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.macro.sick", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("ways", nargs="*", choices=[[], *(way.__name__ for way in WAYS)], help="these only", default=[])
    parser.add_argument("--kafka", action="store_true", help="brokers are Apache Kafka's")
    options = parser.parse_args()
    print("| records | " + " | ".join(f"{fault}: goodput %, longest call ms, p99 ms" for fault in FAULTS) + " |")
    print("|---|" + "---|" * len(FAULTS), flush=True)
    for way in WAYS:
        if options.ways and way.__name__ not in options.ways:
            continue
        with ExitStack() as stack:
            kafka = Kafka(stack) if options.kafka else None
            cells = ["{:.0f}, {:.0f}, {:.0f}".format(*measure(kafka, way, fault)) for fault in FAULTS]
        print(f"| {(way.__doc__ or '').rstrip('.')} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
