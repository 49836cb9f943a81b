"""Transactions of this producer while embedded brokers fail: `python -m tests.campaigns.transaction_faults`.

    kills   the broker is killed with -9 at random instants of transactions and started again. What was answered to be
            committed is read exactly once, in order; what was aborted never; what is unknown as a whole or not at all.
    copy    a consume-transform-produce loop, while the broker is killed, connections are cut, answers are lost or are
            errors, and the client is dropped inside transactions. The output must equal the input.
    disks   such a loop in a cluster of three, while log directories fail, also those of coordinators.

Afterwards no transaction may be open, and readers of committed data must get to the end of every partition.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Consumer, Message, TopicPartition

from kafkaprod import DeliveryFuture, Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import Fault, close, close_after_handling, drop_reply, reply_with
from kafkaprod.errors import CommitUnknownError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.campaigns.disk_faults import LOG_DIRS, break_disk
from tests.support.producer.transactions import check_ends, finish, ready_producer

SOURCE, TARGET, PARTITIONS = "source", "target", 3
CALL_S = 20.0
PATIENCE_S = 120.0
RECORDS_A_FAULT = 100  # of the copying loop, a transaction of which has up to 100
FAULTS: tuple[Fault, ...] = (
    close(),
    close_after_handling(),
    drop_reply(),
    reply_with(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
)
APIS = (
    ApiKey.PRODUCE,
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


@dataclass
class Tally:
    """What happened."""

    transactions: int = 0
    committed: int = 0
    unknown: int = 0
    kills: int = 0
    faults: int = 0
    clients: int = 0
    records: int = 0
    seconds: float = 0.0


@dataclass
class Outcomes:
    """Transactions by what the client knows of them."""

    committed: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


class Killer(threading.Thread):
    """Kills the broker at random instants and starts it again.

    Args:
        broker: Used by this thread alone while it runs.
        rng: Of the instants.
        kills: How many; 0 for as many as there is time for.
        may_act: Called for what else may go wrong at each instant.
    """

    def __init__(self, broker: EmbeddedBroker, rng: random.Random, kills: int, may_act: Callable[[], bool]) -> None:
        super().__init__()
        self._broker, self._rng, self._left, self._may_act = broker, rng, kills, may_act
        self._is_endless = kills == 0
        self._stopping = threading.Event()
        self.kills = 0

    def run(self) -> None:
        while (self._is_endless or self._left) and not self._stopping.wait(self._rng.uniform(0.02, 0.3)):
            if self._may_act():
                continue
            self._broker.kill()
            self._broker.start()
            self.kills += 1
            self._left -= 1

    @property
    def is_done(self) -> bool:
        return not self.is_alive()

    def stop(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def make_producer(servers: str, name: str) -> Producer:
    return ready_producer(
        servers,
        name,
        call_s=CALL_S,
        patience_s=PATIENCE_S,
        request_timeout_ms=1500,
        delivery_timeout_ms=30_000,
        reconnect_backoff_max_ms=200,
    )


def run_kills(kills: int, level: int, seed: int) -> Tally:
    """See the module."""
    rng, tally, outcomes = random.Random(seed), Tally(), Outcomes()
    started = time.monotonic()
    with EmbeddedBroker(topics={TARGET: PARTITIONS}, transaction_version=level) as broker:
        killer = Killer(broker, random.Random(seed + 1), kills, lambda: False)
        producer = make_producer(broker.bootstrap_servers, "kills")
        killer.start()
        try:
            while not killer.is_done:
                number, tally.transactions = tally.transactions, tally.transactions + 1
                try:
                    write_one(producer, number, rng, outcomes)
                except KafkaError as error:
                    if getattr(error, "outcome", "") == "unknown":
                        outcomes.unknown.append(number)
                    producer.close(0)
                    producer = make_producer(broker.bootstrap_servers, "kills")
                    tally.clients += 1
        finally:
            killer.stop()
        producer.close(CALL_S)
        tally.kills, tally.committed, tally.unknown = killer.kills, len(outcomes.committed), len(outcomes.unknown)
        check_ends(broker.bootstrap_servers, TARGET)
        seen = [[int(value) for value in values] for values in read_committed(broker.bootstrap_servers, TARGET)]
        assert seen == [seen[0]] * PARTITIONS, "a transaction is seen in part"
        for numbers in seen:
            tally.records += len(numbers)
            kept = [number for number in numbers if number not in outcomes.unknown]
            assert kept == outcomes.committed, "lost, doubled, misplaced or aborted records are read"
            assert len(set(numbers)) == len(numbers)
    tally.seconds = time.monotonic() - started
    return tally


def write_one(producer: Producer, number: int, rng: random.Random, outcomes: Outcomes) -> None:
    """One transaction over all partitions; every third one is aborted."""
    producer.begin_transaction()
    try:
        for partition in range(PARTITIONS):
            producer.send(TARGET, b"%d" % number, partition=partition)
        if rng.random() < 0.3:
            producer.flush(CALL_S)
        if number % 3 == 2:
            finish(producer.abort_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
        else:
            finish(producer.commit_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
            outcomes.committed.append(number)
    except (KafkaError, TimeoutError) as error:
        if isinstance(error, KafkaError) and error.category not in (None, "abortable"):
            raise
        if getattr(error, "outcome", "") == "unknown":
            raise
        finish(producer.abort_transaction, call_s=CALL_S, patience_s=PATIENCE_S)


def run_copy(records: int, level: int, seed: int) -> Tally:
    """See the module."""
    rng, tally, drops = random.Random(seed), Tally(), threading.Event()
    most_faults = max(records // RECORDS_A_FAULT, 10)
    started = time.monotonic()
    with EmbeddedBroker(topics={SOURCE: PARTITIONS, TARGET: PARTITIONS}, transaction_version=level) as broker:
        fill(broker.bootstrap_servers, records)
        killer = Killer(broker, rng, 0, lambda: act(broker, rng, drops, tally, most_faults))
        killer.start()
        try:
            copy(broker.bootstrap_servers, lambda: records, drops, tally)
        finally:
            killer.stop()
        broker.faults.clear()
        tally.kills = killer.kills
        tally.records = check_copy(broker.bootstrap_servers, records)
    tally.seconds = time.monotonic() - started
    return tally


def check_copy(servers: str, records: int) -> int:
    """Check that the target has each record of the source once, in order; return how many they are."""
    finish_open(servers)
    check_ends(servers, TARGET)
    for partition, values in enumerate(read_committed(servers, TARGET)):
        expected = [b"%d!" % number for number in range(partition, records, PARTITIONS)]
        assert values == expected, f"partition {partition}: {len(values)} records, expected {len(expected)}"
    return records


def run_disks(faults: int, seed: int) -> Tally:
    """See the module."""
    dice, tally, drops, is_over = random.Random(seed), Tally(), threading.Event(), threading.Event()
    topics = {SOURCE: PARTITIONS, TARGET: PARTITIONS}
    started = time.monotonic()
    with (
        EmbeddedCluster(brokers=3, log_dirs=LOG_DIRS, topics=topics, session_timeout_ms=3_000) as cluster,
        ThreadPoolExecutor(2) as pool,
    ):
        servers = cluster.bootstrap_servers
        written = pool.submit(fill_until, servers, is_over)
        copied = pool.submit(copy, servers, partial(number_written, written), drops, tally)
        try:
            for _ in range(faults):
                time.sleep(dice.uniform(0, 2.5))  # between two faults some transactions end
                if dice.random() < 0.2:
                    drops.set()
                break_disk(cluster, dice.choice(cluster.brokers), dice)
                tally.faults += 1
        finally:
            is_over.set()
        copied.result(PATIENCE_S)
        tally.records = check_copy(servers, written.result())
    tally.seconds = time.monotonic() - started
    return tally


def number_written(written: Future[int]) -> int | None:
    """How many records the source has; None while more are written. Writing that failed ends the copy, too."""
    if not written.done():
        return None
    assert written.exception() is None, written.exception()
    return written.result()


def fill_until(servers: str, is_over: threading.Event) -> int:
    """Write a few hundred records a second to the source; return how many they were. Raises why one was not written."""
    futures: list[DeliveryFuture] = []
    with Producer(bootstrap_servers=servers) as producer:
        while not is_over.wait(0.02):
            for number in range(len(futures), len(futures) + 2 * PARTITIONS):
                futures.append(producer.send(SOURCE, b"%d" % number, partition=number % PARTITIONS))
    for future in futures:
        future.result(0)
    return len(futures)


def fill(servers: str, records: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(PARTITIONS):
            producer.send_many(
                SOURCE, [b"%d" % number for number in range(partition, records, PARTITIONS)], partition=partition
            )


def act(broker: EmbeddedBroker, rng: random.Random, drops: threading.Event, tally: Tally, most_faults: int) -> bool:
    """Do something wrong; return whether it was enough, and the broker may live.

    After `most_faults` nothing more goes wrong: a fast machine would otherwise have a fault in each transaction.
    """
    if tally.faults >= most_faults:
        return True
    chance = rng.random()
    if chance < 0.1:
        return False
    tally.faults += 1
    if chance < 0.3:
        drops.set()
    else:
        with contextlib.suppress(OSError, KafkaError):
            broker.faults.on(rng.choice(APIS), rng.choice(FAULTS), times=rng.randrange(1, 3))
    return True


def copy(servers: str, records: Callable[[], int | None], drops: threading.Event, tally: Tally) -> None:
    """Copy until the group's offsets are at the end; make client and consumer anew whenever they fail.

    Args:
        servers: Bootstrap servers.
        records: How many the source will have; None: more are written.
        drops: Set, the client is dropped within its next transaction.
        tally: Counts.
    """
    while True:
        producer = make_producer(servers, "copy")
        tally.clients += 1
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "copy",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        consumer.subscribe([SOURCE])
        try:
            if copy_some(producer, consumer, records, drops, tally):
                return
        except (KafkaError, TimeoutError):
            pass  # the transaction is aborted, or is by the next init; its input is read again
        finally:
            producer.close(0)
            consumer.close()


def copy_some(
    producer: Producer, consumer: Consumer, records: Callable[[], int | None], drops: threading.Event, tally: Tally
) -> bool:
    """Copy until something fails; return True at the end of the input."""
    positions = dict.fromkeys(range(PARTITIONS), 0)
    while True:
        messages = [message for message in consumer.consume(100, 0.3) if message.error() is None]
        if not messages:
            if all_committed(consumer, records()):
                return True
            continue
        tally.transactions += 1
        try:
            with producer.transaction():
                copy_batch(producer, messages, positions)
                if drops.is_set():
                    drops.clear()
                    producer.close(0)
                    return False
                producer.send_offsets_to_transaction(
                    {(SOURCE, partition): position for partition, position in positions.items() if position},
                    consumer.consumer_group_metadata(),
                    CALL_S,
                )
        except CommitUnknownError:
            finish(producer.commit_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
        tally.committed += 1


def copy_batch(producer: Producer, messages: list[Message], positions: dict[int, int]) -> None:
    for message in messages:
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        producer.send(TARGET, value + b"!", partition=partition)
        positions[partition] = offset + 1


def all_committed(consumer: Consumer, records: int | None) -> bool:
    places = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)]
    try:
        committed = consumer.committed(places, CALL_S)
    except Exception:
        return False
    return sum(max(place.offset, 0) for place in committed) == records


def finish_open(servers: str) -> None:
    """The last producer may have been dropped inside a transaction: its successor ends that."""
    make_producer(servers, "copy").close(CALL_S)


def read_committed(servers: str, topic: str) -> Iterator[list[bytes]]:
    """The values of each partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, partition, 0)])
            values: list[bytes] = []
            while True:
                message = consumer.poll(CALL_S)
                assert message is not None, "a reader of committed data does not get to the end"
                if message.error():
                    break
                value = message.value()
                assert value is not None
                values.append(value)
            yield values
    finally:
        consumer.close()


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.transaction_faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill the broker so often (default: 0)")
    parser.add_argument("--copy", type=int, default=0, metavar="RECORDS", help="copy so many (default: 0)")
    parser.add_argument("--disks", type=int, default=0, metavar="N", help="let disks fail so often (default: 0)")
    parser.add_argument("--level", type=int, default=2, choices=(1, 2), help="transaction.version (default: 2)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    logging.getLogger("kafkaprod").setLevel(logging.ERROR)  # connections end all the time
    print(f"seed {arguments.seed}", flush=True)
    if arguments.kills:
        print("kills", run_kills(arguments.kills, arguments.level, arguments.seed), flush=True)
    if arguments.copy:
        print("copy", run_copy(arguments.copy, arguments.level, arguments.seed), flush=True)
    if arguments.disks:
        print("disks", run_disks(arguments.disks, arguments.seed), flush=True)


if __name__ == "__main__":
    main()
