"""The broker killed in the midst of transactions: each is seen whole or not at all, as the producer was answered."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.broker.fixtures_broker import wait_until

TOPIC = "orders"
PARTITIONS = 3
TRANSACTIONS = 30
KILLS = 4
STEPS = ("begun", "sent", "ending")


class Killer(threading.Thread):
    """Kills the broker and starts it again, whenever it is woken; the producer works on meanwhile."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__()
        self.wake = threading.Event()
        self.is_stopping = False
        self.kills = 0
        self._broker = broker

    def run(self) -> None:
        while self.wake.wait(60) and not self.is_stopping:
            self.wake.clear()
            self._broker.kill()
            self._broker.start()
            self.kills += 1

    def stop(self) -> None:
        self.is_stopping = True
        self.wake.set()
        self.join(60)
        assert not self.is_alive()


class NothingToAbortError(Exception):
    """librdkafka wanted to abort a transaction that the broker has never heard of, and can only be replaced.

    Its AddPartitionsToTxn was lost with the connection, so it asks for an abort to be safe. A coordinator that has no
    open transaction and committed the last one answers INVALID_TXN_STATE, as that of Apache Kafka does.
    """


def end(producer: Producer, is_commit: bool) -> bool:
    """Commit or abort until there is an answer; return whether the transaction was committed."""
    while True:
        try:
            if is_commit:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
            return is_commit
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                is_commit = False
            elif not is_commit and reason.code() == KafkaError.INVALID_TXN_STATE:
                raise NothingToAbortError from error
            elif not reason.retriable():
                raise


def start_producer(broker: EmbeddedBroker) -> Producer:
    """Return a producer of the one transactional id, ready to begin."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx", "linger.ms": 0})
    producer.init_transactions(60)
    return producer


def run_transactions(broker: EmbeddedBroker, killer: Killer, seed: int) -> dict[int, bool]:
    """Write to all partitions in each transaction; return by its number whether it was committed."""
    rng = random.Random(seed)
    deadly = {(number, rng.choice(STEPS)) for number in rng.sample(range(1, TRANSACTIONS), KILLS)}
    outcomes: dict[int, bool] = {}
    producer = start_producer(broker)

    def pass_step(number: int, step: str) -> None:
        if (number, step) in deadly:
            killer.wake.set()

    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        pass_step(number, "begun")
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        pass_step(number, "sent")
        if rng.random() < 0.5:
            producer.flush(60)
        pass_step(number, "ending")
        try:
            outcomes[number] = end(producer, is_commit=number % 3 != 0)
        except NothingToAbortError:
            assert any(deadly_number <= number for deadly_number, _ in deadly)
            outcomes[number] = False
            producer = start_producer(broker)
    return outcomes


def read_committed(broker: EmbeddedBroker) -> list[Counter[int]]:
    """How often each transaction is seen in each partition, up to the end of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "-",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    consumer.assign(places)
    seen = [Counter[int]() for _ in places]
    at_end: set[int] = set()

    def read_one() -> bool:
        message: Any = consumer.poll(1)
        if message is not None and message.error() is not None:
            at_end.add(message.partition())
        elif message is not None:
            seen[message.partition()][int(message.value())] += 1
        return len(at_end) == len(places)

    wait_until(read_one, "the ends of the partitions")
    consumer.close()
    return seen


@pytest.mark.parametrize("level", [1, 2])
def test_killed_broker_keeps_transactions_whole(tmp_path: Path, level: int) -> None:
    with EmbeddedBroker(tmp_path / "data", topics={TOPIC: PARTITIONS}, transaction_version=level) as broker:
        killer = Killer(broker)
        killer.start()
        try:
            outcomes = run_transactions(broker, killer, seed=level)
        finally:
            killer.stop()
        assert killer.kills >= 1
        expected = Counter(number for number, is_committed in outcomes.items() if is_committed)
        assert len(expected) >= TRANSACTIONS // 3
        assert read_committed(broker) == [expected] * PARTITIONS
