"""Transactions on three nodes of Apache Kafka that fail all the time: `python -m tests.campaigns.transaction_bounces`.

A writer in a process of its own makes one transaction after another, every fifth of them aborted. Meanwhile

    brokers      are killed with -9, the coordinator of the writer and leaders of its partitions among them
    writers      are killed with -9 and started again
    coordinators move without a kill, because their node ends in order
    connections  are cut, and lose requests and answers, in a proxy before each broker

The writer says what it will do before each step, so that the outcome of each transaction is known even if it is killed.
Afterwards a reader of committed data (librdkafka's; with `--java` Java's, too) must get every committed record once and
in order, no other one, and a transaction whose outcome the writer never learned as a whole or not at all; no
transaction may be open.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkaprod import Producer
from kafkaprod.errors import KafkaError
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.proxy import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    FaultProxy,
)
from tests.kafka.proxy_actions import Action, Cut, Delay, DropAndReset, ForwardAndReset
from tests.kafka.reading import read_all, values_with_java
from tests.support.producer.transactions import check_ends, finish, ready_producer

TOPIC, PARTITIONS, NAME = "bounced", 6, "bounces"
LOG = "__transaction_state"
PATIENCE_S = 180.0
CALL_S = 30.0
APIS = (
    PRODUCE,
    PRODUCE,
    PRODUCE,
    END_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    FIND_COORDINATOR,
    ADD_PARTITIONS_TO_TXN,
    METADATA,
)
ACTIONS: tuple[Action, ...] = (Cut(), Cut(0), DropAndReset(), ForwardAndReset(), Delay(0.2))
OVERRIDES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}


@dataclass
class Goals:
    """What must have happened before the run ends."""

    transactions: int
    records: int
    broker_kills: int
    client_kills: int
    moves: int
    faults: int


@dataclass
class Tally:
    """What has happened."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    producers: int = 0
    broker_kills: int = 0
    coordinator_kills: int = 0
    client_kills: int = 0
    moves: int = 0
    faults: int = 0
    records: int = 0
    seconds: float = 0.0


@dataclass
class Outcomes:
    """The last word of the writers on each transaction: begin, commit, committed, abort or aborted."""

    words: dict[int, str] = field(default_factory=dict)
    producers: int = 0

    def count(self, word: str) -> int:
        return list(self.words.values()).count(word)


class Writer:
    """The writing process; started again from the next transaction whenever it was killed.

    Args:
        servers: Proxied addresses.
        records: Of one transaction.
    """

    def __init__(self, servers: str, records: int) -> None:
        self._servers, self._records = servers, records
        self._is_stopping = False
        self._process: subprocess.Popen[str] | None = None
        self.outcomes = Outcomes()
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping:
            first = max(self.outcomes.words, default=-1) + 1
            arguments = ["--writer", self._servers, str(first), str(self._records)]
            command = [sys.executable, "-m", "tests.campaigns.transaction_bounces", *arguments]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                self._process = process
                assert process.stdout is not None
                for line in process.stdout:
                    word, _, number = line.strip().partition(" ")
                    if word == "producer":
                        self.outcomes.producers += 1
                    elif number:
                        self.outcomes.words[int(number)] = word
            if process.returncode > 0:
                self.failure = f"the writer ended with {process.returncode}"
                return

    def kill(self) -> None:
        """Kill it with -9 once it is inside a transaction; a new one starts."""
        process, number = self._process, len(self.outcomes.words)
        wait_until(lambda: len(self.outcomes.words) > number or self.failure is not None, PATIENCE_S, "transaction")
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """Let it end its transaction, and wait."""
        self._is_stopping = True
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the writer does not end"


def write(servers: str, first: int, records: int) -> None:
    """Body of the writing process: runs until its input ends."""
    stopping = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    number, producer = first, make_producer(servers)
    while not stopping.is_set():
        try:
            write_one(producer, number, records)
        except (KafkaError, TimeoutError) as error:
            print(f"transaction {number}: {error!r}", file=sys.stderr, flush=True)
            producer.close(0)
            producer = make_producer(servers)
        number += 1
    producer.close(CALL_S)


def write_one(producer: Producer, number: int, records: int) -> None:
    """One transaction over all partitions; every fifth one is aborted, and each that cannot be committed."""
    say("begin", number)
    producer.begin_transaction()
    is_committing = False
    try:
        for partition in range(PARTITIONS):
            values = [b"%d:%d" % (number, index) for index in range(partition, records, PARTITIONS)]
            producer.send_many(TOPIC, values, partition=partition)
        if number % 5 != 4:
            is_committing = True
            say("commit", number)
            finish(producer.commit_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
            say("committed", number)
            return
    except KafkaError as error:
        is_unknown = is_committing and getattr(error, "outcome", "") == "unknown"
        if is_unknown or error.category not in (None, "abortable"):
            raise
    say("abort", number)
    finish(producer.abort_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
    say("aborted", number)


def say(word: str, number: int) -> None:
    print(word, number, flush=True)


def make_producer(servers: str) -> Producer:
    producer = ready_producer(
        servers,
        NAME,
        call_s=CALL_S,
        patience_s=PATIENCE_S,
        request_timeout_ms=5000,
        delivery_timeout_ms=60_000,
        reconnect_backoff_max_ms=300,
    )
    print("producer", flush=True)
    return producer


class Bounces:
    """What goes wrong, in a thread for each kind.

    Args:
        cluster: Of three nodes.
        proxies: By node.
        writer: The writing process.
        goals: When to stop.
        seed: Of the choices.
    """

    def __init__(
        self, cluster: KafkaCluster, proxies: dict[int, FaultProxy], writer: Writer, goals: Goals, seed: int
    ) -> None:
        self._cluster, self._proxies, self._writer, self._goals = cluster, proxies, writer, goals
        self._rng = random.Random(seed)
        self._stopping = threading.Event()
        self.tally = Tally()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Return when every goal is reached."""
        kinds = (self._bounce_nodes, self._kill_writers, self._cut_connections)
        threads = [threading.Thread(target=self._guarded, args=(kind,)) for kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while self.failure is None and self._writer.failure is None and not self._is_enough():
            time.sleep(0.1)
        for proxy in self._proxies.values():
            proxy.clear()

    def _is_enough(self) -> bool:
        return len(self._writer.outcomes.words) >= self._goals.transactions

    def _guarded(self, kind: Callable[[], None]) -> None:
        try:
            kind()
        except BaseException as failure:
            traceback.print_exc()
            self.failure = failure
            self._stopping.set()

    def _bounce_nodes(self) -> None:
        tally, goals = self.tally, self._goals
        while tally.broker_kills < goals.broker_kills and self._pause(1.0, 3.0):
            coordinator = self._coordinator()
            node_id = coordinator if tally.broker_kills % 2 == 0 else self._rng.choice(self._cluster.node_ids)
            self._cluster.kill9(node_id)
            tally.broker_kills += 1
            tally.coordinator_kills += node_id == coordinator
            self._stopping.wait(self._rng.uniform(0.5, 6.0))  # less and more than a session of a broker
            self._cluster.start_node(node_id)
            self._cluster.wait_until_ready()
            print(f"{len(self._writer.outcomes.words)} transactions; {tally}", flush=True)
        while tally.moves < goals.moves and self._pause(1.0, 3.0):
            coordinator = self._coordinator()
            self._cluster.restart(coordinator)  # hands its partitions over before it ends
            tally.moves += self._coordinator() != coordinator
            print(tally, flush=True)

    def _coordinator(self) -> int:
        """The node that coordinates the writer's transactions, once there is one."""
        number = partition_of(NAME, len(self._leaders(LOG)))
        wait_until(lambda: self._leaders(LOG)[number] in self._cluster.node_ids, 60, "coordinator")
        return self._leaders(LOG)[number]

    def _leaders(self, topic: str) -> dict[int, int]:
        admin = self._cluster.admin()
        partitions = admin.list_topics(timeout=30).topics[topic].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def _kill_writers(self) -> None:
        while self.tally.client_kills < self._goals.client_kills and self._pause(2.0, 10.0):
            self._writer.kill()
            self.tally.client_kills += 1

    def _cut_connections(self) -> None:
        while self.tally.faults < self._goals.faults and self._pause(0.02, 0.2):
            api, action, is_reply = self._rng.choice(APIS), self._rng.choice(ACTIONS), self._rng.random() < 0.6
            rules = []
            for proxy in self._proxies.values():
                rules.append((proxy.on_reply if is_reply else proxy.on_request)(api, action, times=1))
            with contextlib.suppress(TimeoutError):
                wait_until(lambda rules=rules: any(rule.hits for rule in rules), 0.5, "frame")  # type: ignore[misc]
            for rule in rules:
                rule.times = rule.hits  # no more
            self.tally.faults += sum(rule.hits for rule in rules)

    def _pause(self, least_s: float, most_s: float) -> bool:
        """Wait; return whether to continue."""
        if self._writer.failure is not None:
            raise AssertionError(self._writer.failure)
        return not self._stopping.wait(self._rng.uniform(least_s, most_s))


def partition_of(transactional_id: str, partitions: int) -> int:
    """The partition of the coordinators' log that an id belongs to: Java's String.hashCode()."""
    code = 0
    for character in transactional_id:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % max(partitions, 1)


def run(goals: Goals, seed: int, *, reads_with_java: bool = False) -> Tally:
    """See the module. Raises AssertionError for what must not be."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        cluster = KafkaCluster(3, listeners=("PLAINTEXT", "PROXIED"), overrides=OVERRIDES, jvm_options=("-Xmx256m",))
        stack.callback(cluster.close)
        proxies = {}
        for node_id in cluster.node_ids:
            proxies[node_id] = stack.enter_context(FaultProxy(cluster.address(node_id, "PROXIED")))
            cluster.advertise(node_id, *proxies[node_id].address, "PROXIED")
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS)
        servers = cluster.bootstrap("PROXIED")
        make_producer(servers).close()  # makes the coordinators' log
        print(f"three nodes run after {time.monotonic() - started:.0f} s", flush=True)
        writer = Writer(servers, goals.records)
        bounces = Bounces(cluster, proxies, writer, goals, seed)
        try:
            bounces.run()
        finally:
            writer.stop()
            print(bounces.tally, flush=True)
        assert bounces.failure is None, bounces.failure
        assert writer.failure is None, writer.failure
        cluster.wait_until_ready()
        make_producer(servers).close(CALL_S)  # ends what a killed writer left
        check_ends(cluster.direct_bootstrap(), TOPIC)
        tally = bounces.tally
        tally.records = check(cluster.direct_bootstrap(), writer.outcomes, goals.records)
        if reads_with_java:
            check_with_java(cluster.direct_bootstrap(), tally.records)
    words = writer.outcomes
    tally.begun, tally.committed, tally.aborted = len(words.words), words.count("committed"), words.count("aborted")
    tally.unknown, tally.producers = words.count("commit"), words.producers
    tally.seconds = round(time.monotonic() - started, 1)
    return tally


def check(servers: str, outcomes: Outcomes, records: int) -> int:
    """Compare what a reader of committed data gets with what the writers know; return how many records there are."""
    committed = {number for number, word in outcomes.words.items() if word == "committed"}
    unknown = {number for number, word in outcomes.words.items() if word == "commit"}
    count, seen_of = 0, {}
    for partition, read in read_all(servers, TOPIC, timeout_s=PATIENCE_S).items():
        found = [(record.value or b"").split(b":") for record in read]
        places = [(int(number), int(index)) for number, index in found]
        seen = {number for number, _ in places}
        assert not seen - committed - unknown, (
            f"partition {partition}: phantoms of {sorted(seen - committed - unknown)}"
        )
        assert not committed - seen, f"partition {partition}: lost {sorted(committed - seen)}"
        expected = [(number, index) for number in sorted(seen) for index in range(partition, records, PARTITIONS)]
        assert places == expected, f"partition {partition}: lost, doubled or misplaced records"
        seen_of[partition] = seen
        count += len(places)
    assert all(seen == seen_of[0] for seen in seen_of.values()), "a transaction is seen in part"
    return count


def check_with_java(servers: str, records: int) -> None:
    """Compare what Java's consumer of committed data gets with what librdkafka's got."""
    from_java = Counter(values_with_java(servers, TOPIC, records + 1))
    librdkafka = Counter(record.value or b"" for read in read_all(servers, TOPIC).values() for record in read)
    assert from_java == librdkafka, f"Java reads {from_java.total()} records, librdkafka {librdkafka.total()}"
    print(f"Java reads the same {from_java.total()} records", flush=True)


def main() -> None:
    """Run as the arguments say."""
    if sys.argv[1:2] == ["--writer"]:
        servers, first, records = sys.argv[2:]
        return write(servers, int(first), int(records))
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.transaction_bounces", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--transactions", type=int, default=200)
    parser.add_argument("--records", type=int, default=1000, help="of a transaction")
    parser.add_argument("--broker-kills", type=int, default=20)
    parser.add_argument("--client-kills", type=int, default=20)
    parser.add_argument("--moves", type=int, default=10, help="of the writer's coordinator without a kill")
    parser.add_argument("--faults", type=int, default=500, help="of connections")
    parser.add_argument("--java", action="store_true", help="read with Java's consumer, too")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = vars(parser.parse_args())
    seed, reads_with_java = options.pop("seed"), options.pop("java")
    print(f"seed {seed}", flush=True)
    print(run(Goals(**options), seed, reads_with_java=reads_with_java), flush=True)
    return None


if __name__ == "__main__":
    main()
