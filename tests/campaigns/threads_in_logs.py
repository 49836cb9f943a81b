"""Threads send in every way to topics that change, and the logs show each record once, in order by thread.

Part of `python -m tests.campaigns.free_threads`. In each round the threads share one producer and a topic that gets
more partitions while they send; metadata comes ten times a second; children are forked. Each thread sends in another
way, and in each second round all of them send the same objects, whose counts they then share.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from kafkaprod import Column, DeliveryFuture, Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.reading import PartitionReader
from kafkaprod.admin.topics import create_topic, delete_topic, log_offsets
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config.producer_config import ProducerConfig
from kafkaprod.errors import ForkedProducerError
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.support.threads import at_once

COUNT = 30_000  # records of a thread in a round
ROWS = 500  # of a block
FEW, MANY = 4, 64  # partitions of a topic at its start, and at most
GROW_S = 0.02
MOST_FORKS = 3  # in a round: each stops all threads for as long as it copies the process
CHILD_S = 300
WAIT_S = 600.0
OPTIONS: dict[str, Any] = {
    "linger_ms": 1,
    "metadata_max_age_ms": 100,
    "batch_size": 4096,
}
# A machine with much other work may let a broker wait for a minute: that is no fault of the threads.
PATIENCE: dict[str, Any] = {"request_timeout_ms": 300_000, "delivery_timeout_ms": 600_000, "max_block_ms": 600_000}

SHARED = [b"%d" % number for number in range(COUNT)]


class Sends:
    """What a thread sends: its key tells whose a record is, its value which one."""

    def __init__(self, producer: Producer, topic: str, thread: int, is_shared: bool) -> None:
        self.called: Counter[int] = Counter()
        self._producer = producer
        self._topic = topic
        self._key = b"%d" % thread
        self._partition = thread % FEW
        self._values = SHARED if is_shared else [b"%d" % number for number in range(COUNT)]

    def _note(self, number: int, future: DeliveryFuture) -> None:
        assert future.succeeded()
        self.called[number] += 1

    def one_by_one(self) -> None:
        """Send to a partition of its own, by number."""
        for value in self._values:
            self._producer.send(self._topic, value, self._key, partition=self._partition)

    def with_callbacks(self) -> None:
        """Send by hash of the key, each with a callback."""
        for number, value in enumerate(self._values):
            self._producer.send(self._topic, value, self._key).add_done_callback(partial(self._note, number))

    def without_keys(self) -> None:
        """Send to the sticky partition; the value tells whose it is."""
        for value in self._values:
            self._producer.send(self._topic, self._key + b":" + value)

    def as_lists(self) -> None:
        """Send lists, by hash of the key."""
        keys = [self._key] * ROWS
        for begin in range(0, COUNT, ROWS):
            self._producer.send_many(self._topic, self._values[begin : begin + ROWS], keys)

    def as_lists_without_keys(self) -> None:
        """Send lists to the sticky partition."""
        for begin in range(0, COUNT, ROWS):
            rows = [self._key + b":" + value for value in self._values[begin : begin + ROWS]]
            self._producer.send_many(self._topic, rows)

    def as_columns(self) -> None:
        """Send columns, spread over the first partitions."""
        keys = Column.from_list([self._key] * ROWS)
        partitions = np.arange(ROWS, dtype=np.int32) % FEW
        for begin in range(0, COUNT, ROWS):
            values = Column.from_list(self._values[begin : begin + ROWS])
            self._producer.send_columns(self._topic, values, keys, partitions=partitions)

    def as_columns_by_key(self) -> None:
        """Send columns, by hash of the key."""
        keys = Column.from_list([self._key] * ROWS)
        for begin in range(0, COUNT, ROWS):
            self._producer.send_columns(self._topic, Column.from_list(self._values[begin : begin + ROWS]), keys)


WAYS: list[Callable[[Sends], None]] = [
    Sends.one_by_one,
    Sends.as_lists,
    Sends.as_columns_by_key,
    Sends.with_callbacks,
    Sends.without_keys,
    Sends.as_lists_without_keys,
    Sends.as_columns,
]


def fork_and_send(producer: Producer, topic: str) -> None:
    """Fork; the child must be refused."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(CHILD_S)  # a child that hangs dies of it
        code = 1
        try:
            producer.send(topic, b"child")
        except ForkedProducerError:
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"a child that sends ended with {code}"


class Changes(threading.Thread):
    """What happens to a topic and its producer beside the threads that send: it grows, children are forked."""

    def __init__(self, client: ClusterClient, producer: Producer, topic: str) -> None:
        super().__init__()
        self.growths = self.forks = 0
        self.is_over = threading.Event()
        self.error: BaseException | None = None
        self._client = client
        self._producer = producer
        self._topic = topic

    def run(self) -> None:
        """See the class."""
        count = FEW
        try:
            while not self.is_over.wait(GROW_S):
                if count < MANY:
                    count += 4
                    topics = [CreatePartitionsTopic(name=self._topic, count=count)]
                    answer = self._client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=10_000))
                    assert answer.results[0].error_code == 0
                    self.growths += 1
                if self.forks < MOST_FORKS:
                    fork_and_send(self._producer, self._topic)
                    self.forks += 1
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """End it; raise what it met."""
        self.is_over.set()
        self.join()
        if self.error is not None:
            raise self.error


def check_log(records: Iterator[tuple[int, bytes | None, bytes]], threads: int) -> None:
    """Raise AssertionError unless each record is there once, and those of a thread in order in each partition."""
    seen: list[bytearray] = [bytearray(COUNT) for _ in range(threads)]
    last: dict[tuple[int, int], int] = {}
    for partition, key, value in records:
        if key is None:
            key, _, value = value.partition(b":")
        thread, number = int(key), int(value)
        assert not seen[thread][number], f"record {number} of thread {thread} is there twice"
        seen[thread][number] = 1
        before = last.get((partition, thread), -1)
        assert before < number, f"thread {thread}, partition {partition}: record {number} behind {before}"
        last[partition, thread] = number
    missing = [COUNT - sum(each) for each in seen]
    assert not any(missing), f"records that are missing, by thread: {missing}"


def read_log(client: ClusterClient, topic: str) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Yield partition, key and value of each record."""
    for partition, end in log_offsets(client, topic).items():
        for record in PartitionReader(client, topic, partition).records(0, end):
            yield partition, record.key, record.value or b""


def run_round(number: int, client: ClusterClient, servers: str, threads: int, timeouts: dict[str, Any]) -> Changes:
    """Send to a topic of its own, and read it; return what happened to it meanwhile."""
    topic = f"round-{number}"
    create_topic(client, topic, FEW)
    with Producer(bootstrap_servers=servers, **OPTIONS, **timeouts) as producer:
        producer.partitions_for(topic)
        sends = [Sends(producer, topic, thread, is_shared=number % 2 == 1) for thread in range(threads)]
        ways = [WAYS[(number // 2 + thread) % len(WAYS)] for thread in range(threads)]
        changes = Changes(client, producer, topic)
        changes.start()
        try:
            at_once([partial(way, each) for way, each in zip(ways, sends, strict=True)])
        finally:
            changes.end()
        producer.flush(WAIT_S)
    for way, each in zip(ways, sends, strict=True):
        if way is Sends.with_callbacks:
            assert len(each.called) == COUNT
            assert set(each.called.values()) == {1}, "a callback was called twice"
    check_log(read_log(client, topic), threads)
    delete_topic(client, topic)
    return changes


def run_records(seconds: float, threads: int, timeouts: dict[str, Any] = PATIENCE) -> str:
    """Run rounds for as long as that, and at least two: with objects of each thread's own, and with shared ones.

    Without `timeouts` the producer has those of its defaults.
    """
    rounds = growths = forks = 0
    end_s = time.monotonic() + seconds
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with ClusterClient(
            ProducerConfig.from_options({"bootstrap_servers": servers, "request_timeout_ms": 300_000})
        ) as client:
            while rounds < 2 or time.monotonic() < end_s:
                changes = run_round(rounds, client, servers, threads, timeouts)
                growths += changes.growths
                forks += changes.forks
                rounds += 1
    return (
        f"{rounds} rounds, {rounds * threads * COUNT:,} records each once and in order, topics grew {growths} times, "
        f"{forks} children"
    )
