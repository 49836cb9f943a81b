"""What one sick broker of three does to records for the others: it hangs, runs at 1 % of its speed, or is dead.

`python -m benchmarks.macro.sick` prints a table, beside confluent-kafka in the same run:

- goodput: records acknowledged, of those that the program meant to send (RATE a second), in % ; with a partition of its
  own for each record, only those of healthy brokers count, without one all do;
- longest call: the longest `send()` (list, columns) of a record for a healthy partition, in ms;
- p99: from when a record was to be sent to its acknowledgement, in ms, of those that were acknowledged.

The broker becomes sick after WARM_S; SECONDS are measured from GRACE_S later on: until then nobody can know it.
The memory is small, so that the sick broker's records use their share up while it is measured.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

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


class Tally:
    """What became of the records of one run."""

    def __init__(self, healthy: set[int], counts_all: bool) -> None:
        self.healthy, self.counts_all = healthy, counts_all
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


def send_each(cluster: EmbeddedCluster, tally: Tally, rate: float, partitions: list[int | None], **more: Any) -> None:
    """Send single records from one thread for each list of partitions."""
    with closing(Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS, **more)) as producer:
        run_threads([lambda: send_loop(producer, tally, rate, partitions)])


def send_loop(producer: Producer, tally: Tally, rate: float, partitions: list[int | None]) -> None:
    """Send single records to these partitions in turn."""
    for number, due in schedule(tally, rate):
        partition = partitions[number % len(partitions)]
        began = time.monotonic()
        try:
            future = producer.send("t", VALUE, partition=partition)
        except BufferFullError:
            continue
        except ProducerClosedError:
            return  # it waited for the sick broker to the end
        tally.called(partition, due, began)
        future.add_done_callback(partial(tally.settled, partition=partition, due=due))


def one_thread(cluster: EmbeddedCluster, tally: Tally) -> None:
    """send, with partitions, one thread, isolate."""
    send_each(cluster, tally, RATE, list(range(PARTITIONS)), buffer_full_policy="isolate")


def without_keys(cluster: EmbeddedCluster, tally: Tally) -> None:
    """send, without keys."""
    send_each(cluster, tally, RATE, [None])


def six_threads(cluster: EmbeddedCluster, tally: Tally) -> None:
    """send, with partitions, a thread each."""
    with closing(Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)) as producer:
        rate = RATE / PARTITIONS
        run_threads([lambda p=p: send_loop(producer, tally, rate, [p]) for p in range(PARTITIONS)])


def blocks(cluster: EmbeddedCluster, tally: Tally, send: Callable[[Producer], Any]) -> None:
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


def lists(cluster: EmbeddedCluster, tally: Tally) -> None:
    """send_many, without keys."""
    values = [VALUE] * LIST
    blocks(cluster, tally, lambda producer: producer.send_many("t", values))


def columns(cluster: EmbeddedCluster, tally: Tally) -> None:
    """send_columns, without keys."""
    values = Column.from_list([VALUE] * LIST, "values")
    blocks(cluster, tally, lambda producer: producer.send_columns("t", values))


def tasks(cluster: EmbeddedCluster, tally: Tally) -> None:
    """asyncio, with partitions, a task each."""

    async def send(producer: AsyncProducer, partition: int) -> None:
        rate, number, begin = RATE / PARTITIONS, 0, tally.first - WARM_S - GRACE_S
        while time.monotonic() < tally.end:
            due = begin + number / rate
            await asyncio.sleep(due - time.monotonic())
            began = time.monotonic()
            future = await producer.send("t", VALUE, partition=partition)
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


def peer(cluster: EmbeddedCluster, tally: Tally, partitions: list[int]) -> None:
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
                "t",
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


def peer_without_keys(cluster: EmbeddedCluster, tally: Tally) -> None:
    """confluent-kafka, without keys."""
    peer(cluster, tally, [-1])


def peer_with_partitions(cluster: EmbeddedCluster, tally: Tally) -> None:
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
def sick(cluster: EmbeddedCluster, broker: Any, fault: str) -> Iterator[None]:
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


def measure(way: Callable[[EmbeddedCluster, Tally], None], fault: str) -> tuple[float, float, float]:
    """Run one way with one fault, in a cluster of its own."""
    with EmbeddedCluster(brokers=3, session_timeout_ms=120_000) as cluster:
        cluster.create_topic("t", PARTITIONS, replication_factor=1)
        broker = cluster.leader("t", 0)
        healthy = {p for p in range(PARTITIONS) if fault == "none" or cluster.leader("t", p).id != broker.id}
        tally = Tally(healthy, way in KEYLESS)
        with sick(cluster, broker, fault):
            way(cluster, tally)
        return tally.row()


def main(names: list[str]) -> None:
    """Print the table; `names` of ways limit it."""
    print("| records | " + " | ".join(f"{fault}: goodput %, longest call ms, p99 ms" for fault in FAULTS) + " |")
    print("|---|" + "---|" * len(FAULTS))
    for way in WAYS:
        if names and way.__name__ not in names:
            continue
        cells = ["{:.0f}, {:.0f}, {:.0f}".format(*measure(way, fault)) for fault in FAULTS]
        print(f"| {(way.__doc__ or '').rstrip('.')} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
