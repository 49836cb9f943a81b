"""What one bad broker of three does to records: it hangs, runs at 1 % of its speed, is dead, or is only slow.

`python -m benchmarks.macro.sick` prints a table, beside confluent-kafka, the Java producer and franz-go in one run:

- goodput: records acknowledged, of those that the program meant to send (RATE a second), in % ; with a partition of its
  own for each record, only those of healthy brokers count, without one all do;
- p50 and p99: from when a record was to be sent to its acknowledgement, in ms, of those that were acknowledged; with
  transactions, to the return of the commit;
- longest call: the longest `send()` (list, columns) of a record for a healthy partition, in ms.

Transactions: a producer and a thread for each partition, TRANSACTION records each. Their coordinators are healthy, and
the topic that holds their states has one replica, as all topics here: a transaction with records on the sick broker, or
coordinated by it, waits for it with any client.

Three faults are of brokers that are slow and not sick, and all records count: the answers of one broker come 50 to
500 ms late (`late`), 3 % of all brokers' answers come 210 ms late, as where one packet was lost (`lossy`), each broker
is stopped for 200 ms every 2 s (`pauses`). A proxy stands before each broker then.

With `--kafka` the brokers are Apache Kafka's (KRaft, one replica a partition), of the version that the tests take.

The broker becomes sick after WARM_S; SECONDS are measured from GRACE_S later on: until then nobody can know it.
The memory is small, so that the sick broker's records use their share up while it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.late_answers import LateAnswers
from benchmarks.macro.sick_peers import (
    confluent_with_partitions,
    confluent_without_keys,
    franz_with_partitions,
    franz_without_keys,
    java_with_partitions,
    java_without_keys,
)
from benchmarks.macro.sick_tally import (
    AFTER_S,
    GRACE_S,
    LIST,
    OPTIONS,
    PARTITIONS,
    RATE,
    SECONDS,
    TRANSACTION,
    VALUE,
    WARM_S,
    Broker,
    Cluster,
    Run,
    Tally,
    schedule,
)
from kafkaprod import AsyncProducer, Column, Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import TRANSACTION as TRANSACTIONAL_ID
from kafkaprod.admin.coordinators import find_coordinator
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BufferFullError, KafkaError, ProducerClosedError
from tests.kafka.ports import free_ports

LEADERS_S = 30  # that Kafka may take to elect those of a new topic


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

    def __init__(self, stack: ExitStack, proxies: Sequence[LateAnswers]) -> None:
        from tests.kafka.cluster import KafkaCluster

        self._cluster = KafkaCluster(
            3,
            full_speed=True,
            overrides={
                "broker.session.timeout.ms": 120_000,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
            },
        )
        for node_id, proxy in zip(self._cluster.node_ids, proxies, strict=False):
            self._cluster.advertise(node_id, "127.0.0.1", proxy.port)
            proxy.forward_to(self._cluster.address(node_id)[1])
        stack.enter_context(self._cluster)
        self.bootstrap_servers = self._cluster.bootstrap()

    def begin(self, topic: str) -> None:
        """Create a topic, and wait until each partition has a leader."""
        self._cluster.create_topic(topic, PARTITIONS, replication_factor=1)
        end = time.monotonic() + LEADERS_S
        while any(self._cluster.leader(topic, partition) < 0 for partition in range(PARTITIONS)):
            if time.monotonic() > end:
                raise RuntimeError(f"{topic} has no leaders")
            time.sleep(0.1)

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the node that leads a partition."""
        return KafkaBroker(self._cluster, self._cluster.leader(topic, partition))


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


@contextmanager
def transactions(cluster: Cluster, topic: str, sick_id: int) -> Iterator[Run]:
    """transactions, with partitions, a thread each."""
    with ExitStack() as stack:
        producers = []
        for transactional_id in healthy_ids(cluster, topic, sick_id):
            producer = Producer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id, **OPTIONS
            )
            stack.callback(producer.close, 0)
            producer.init_transactions()
            producers.append(producer)

        def run(tally: Tally) -> None:
            rate = RATE / PARTITIONS / TRANSACTION
            run_threads([lambda i=i: transact(producers[i], tally, rate, i) for i in range(PARTITIONS)])
            time.sleep(AFTER_S)

        yield run


def healthy_ids(cluster: Cluster, topic: str, sick_id: int) -> list[str]:
    """Return as many transactional ids as there are partitions, none coordinated by the broker that becomes sick."""
    found: list[str] = []
    number = 0
    with ClusterClient(ProducerConfig.from_options(bootstrap_servers=cluster.bootstrap_servers)) as client:
        while len(found) < PARTITIONS:
            number += 1
            if find_coordinator(client, f"{topic}-{number}", TRANSACTIONAL_ID) != sick_id:
                found.append(f"{topic}-{number}")
    return found


def transact(producer: Producer, tally: Tally, rate: float, partition: int) -> None:
    """Send transactions to a partition; the first error, which a sick broker's partition gets, is the last."""
    for _, due in schedule(tally, rate):
        try:
            producer.begin_transaction()
            for _ in range(TRANSACTION):
                began = time.monotonic()
                producer.send(tally.topic, VALUE, partition=partition)
                tally.called(partition, due, began)
            producer.commit_transaction()
        except KafkaError:
            return
        tally.acknowledged(partition, due, TRANSACTION)


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
def sick(brokers: Sequence[Broker], proxies: Sequence[LateAnswers], fault: str) -> Iterator[None]:
    """Make the first of the brokers sick after WARM_S, or all of them slow."""
    is_over = threading.Event()

    def run() -> None:
        if is_over.wait(WARM_S) or fault == "none":
            return
        if fault == "dead":
            brokers[0].kill()
        elif fault == "late":
            proxies[brokers[0].id - 1].hold(1.0, 50, 500)
        elif fault == "lossy":
            for proxy in proxies:
                proxy.hold(0.03, 210, 210)
        elif fault == "pauses":
            stop_in_turn(brokers, is_over)
        else:
            stop_again_and_again(brokers[0], 0.099 if fault == "at 1 %" else None, is_over)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def stop_again_and_again(broker: Broker, stopped_s: float | None, is_over: threading.Event) -> None:
    """Stop a broker for this time, None: to the end, and let it run for a millisecond."""
    while True:
        broker.pause()
        has_ended = is_over.wait(stopped_s)
        broker.resume()
        if has_ended or is_over.wait(0.001):
            return


def stop_in_turn(brokers: Sequence[Broker], is_over: threading.Event) -> None:
    """Stop each of the brokers for PAUSE_S in every PAUSE_EACH_S."""
    while not is_over.is_set():
        for broker in brokers:
            broker.pause()
            is_over.wait(PAUSE_S)
            broker.resume()
            if is_over.wait(PAUSE_EACH_S / len(brokers) - PAUSE_S):
                return


Way = Callable[[Cluster, Tally], None]
Prepared = Callable[[Cluster, str, int], AbstractContextManager[Run]]

WAYS: tuple[Way, ...] = (
    *(without_keys, lists, columns, one_thread, six_threads, tasks),
    *(confluent_without_keys, confluent_with_partitions),
)
PREPARED: tuple[Prepared, ...] = (  # before the clock runs
    *(transactions, java_without_keys, java_with_partitions),
    *(franz_without_keys, franz_with_partitions),
)
KEYLESS = {way.__name__ for way in (without_keys, lists, columns, confluent_without_keys)} | {
    way.__name__ for way in (java_without_keys, franz_without_keys)
}
FAULTS = ("none", "hangs", "at 1 %", "dead")
SLOW = ("late", "lossy", "pauses")  # none of the brokers is sick
PAUSE_S, PAUSE_EACH_S = 0.2, 2.0


def measure(
    kafka: Kafka | None, proxies: Sequence[LateAnswers], way: Way | Prepared, fault: str
) -> tuple[float, float, float, float]:
    """Run one way with one fault: on Kafka, or in an embedded cluster of its own."""
    with ExitStack() as stack:
        topic = f"{way.__name__}-{fault.replace(' ', '-').replace('%', 'percent')}"
        cluster: Cluster
        if kafka is None:
            embedded = cluster = embedded_cluster(stack, proxies)
            embedded.create_topic(topic, PARTITIONS)
        else:
            cluster = kafka
            kafka.begin(topic)
        leaders = {cluster.leader(topic, partition).id: cluster.leader(topic, partition) for partition in range(3)}
        brokers = list(leaders.values())
        are_all_healthy = fault in ("none", *SLOW)
        healthy = {p for p in range(PARTITIONS) if are_all_healthy or cluster.leader(topic, p).id != brokers[0].id}
        sick_id = -1 if are_all_healthy else brokers[0].id
        run = stack.enter_context(way(cluster, topic, sick_id)) if way in PREPARED else partial(way, cluster)
        tally = Tally(topic, healthy, way.__name__ in KEYLESS)
        with sick(brokers, proxies, fault):
            run(tally)
        return tally.row()


def embedded_cluster(stack: ExitStack, proxies: Sequence[LateAnswers]) -> EmbeddedCluster:
    """Start an embedded cluster, behind the proxies if there are any."""
    ports = free_ports(3) if proxies else ()
    for proxy, port in zip(proxies, ports, strict=False):
        proxy.forward_to(port)
    advertised = [f"127.0.0.1:{proxy.port}" for proxy in proxies]
    return stack.enter_context(
        EmbeddedCluster(brokers=3, session_timeout_ms=120_000, replication_factor=1, ports=ports, advertised=advertised)
    )


def cells(way: Way | Prepared, faults: Sequence[str], *, on_kafka: bool) -> list[str]:
    """Measure one way with these faults, on one Kafka, or each in an embedded cluster of its own."""
    with ExitStack() as stack:
        are_slow = faults[0] in SLOW
        proxies = [stack.enter_context(LateAnswers()) for _ in range(3)] if are_slow and on_kafka else []
        kafka = Kafka(stack, proxies) if on_kafka else None
        found = []
        for fault in faults:
            with ExitStack() as inner:
                behind = proxies or ([inner.enter_context(LateAnswers()) for _ in range(3)] if are_slow else [])
                found.append("{:.0f}, {:.0f}, {:.0f}, {:.0f}".format(*measure(kafka, behind, way, fault)))
                for proxy in proxies:
                    proxy.hold(0, 0, 0)
        return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.macro.sick", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "ways", nargs="*", choices=[[], *(way.__name__ for way in (*WAYS, *PREPARED))], help="these only", default=[]
    )
    parser.add_argument("--kafka", action="store_true", help="brokers are Apache Kafka's")
    parser.add_argument("--fault", action="append", choices=(*FAULTS, *SLOW), help="these only", default=[])
    options = parser.parse_args()
    groups = [[fault for fault in group if fault in (options.fault or group)] for group in (FAULTS, SLOW)]
    faults = [*groups[0], *groups[1]]
    print("| records | " + " | ".join(f"{fault}: goodput %, longest call, p50, p99 ms" for fault in faults) + " |")
    print("|---|" + "---|" * len(faults), flush=True)
    for way in (*WAYS, *PREPARED):
        if options.ways and way.__name__ not in options.ways:
            continue
        found = [cell for group in groups if group for cell in cells(way, group, on_kafka=options.kafka)]
        print(f"| {(way.__doc__ or '').rstrip('.')} | " + " | ".join(found) + " |", flush=True)


if __name__ == "__main__":
    main()
