"""What a commit says while its coordinator is killed: `python -m tests.campaigns.commit_outcomes --kills 20`.

Three nodes of Apache Kafka, behind proxies. In each round some producers, all of one coordinator, commit at once. Their
answers to EndTxn are lost in the proxy or not, and the coordinator is killed with -9 meanwhile: before it has the
request, while it decides, or behind its answer. Then half of the transactional ids are taken over by another producer,
which races with the first one's repetition at the next coordinator; some are taken over before they commit, and some
producers give up when their call times out.

In other rounds (--losses) no broker dies. Each producer's commit is sent and its answer lost, or it is lost itself; the
repetition is kept back until another producer has taken the id over, so that the coordinator refuses it. What the first
attempt did is known to the log only: a client that takes the refusal for the whole truth is found (--plant).

Afterwards a reader of committed data (librdkafka) must see each transaction in every partition or in none, all that
were said to be committed, and none that was said not to be. The table at the end counts what was said, and seen.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from unittest import mock

from kafkaprod import Producer
from kafkaprod.engine.transactions import machine
from kafkaprod.errors import CommitUnknownError, KafkaError
from tests.campaigns.transaction_bounces import partition_of
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.proxy import END_TXN, FaultProxy
from tests.kafka.proxy_actions import Drop, DropAndReset, Hold
from tests.kafka.proxy_link import Frame, Link
from tests.kafka.reading import read_all
from tests.support.producer.transactions import check_ends, finish, ready_producer

TOPIC, PARTITIONS = "outcomes", 3
LOG = "__transaction_state"
CALL_S, PATIENCE_S = 20.0, 180.0
PRODUCERS = 8  # of a round
SPREAD_S = 0.03  # of commits and of the kill behind them
OVERRIDES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
OPTIONS = {"request_timeout_ms": 5000, "delivery_timeout_ms": 60_000, "reconnect_backoff_max_ms": 300}

Tally = Counter[tuple[str, bool]]  # by what was said, and whether it was seen


def ready(servers: str, name: str) -> Producer:
    return ready_producer(servers, name, call_s=CALL_S, patience_s=PATIENCE_S, **OPTIONS)


def commit(producer: Producer, gives_up: bool) -> str:
    """Commit; return what was said."""
    try:
        if gives_up:
            producer.commit_transaction(0.05)
        else:
            finish(producer.commit_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
        return "committed"
    except CommitUnknownError:
        return "unknown, given up"
    except KafkaError as error:
        said = f"{error.outcome}, {type(error).__name__}"
        if error.category != "abortable":
            return said
    try:
        finish(producer.abort_transaction, call_s=CALL_S, patience_s=PATIENCE_S)
    except KafkaError:
        return f"{said}, abort fails"
    return f"{said}, then aborted"


def may_be(said: str, is_seen: bool) -> bool:
    """Whether what was said agrees with what is seen."""
    if said.startswith("committed"):
        return is_seen
    return not is_seen if said.startswith("not committed") or said.endswith("then aborted") else True


class LoseFirst:
    """Passes on the first EndTxn of some ids, loses that of the others, and keeps back what comes after it.

    Args:
        names: All ids.
        reaching: Those whose first EndTxn the broker gets.
    """

    def __init__(self, names: list[str], reaching: set[str]) -> None:
        self._left = {name.encode(): name in reaching for name in names}
        self._hold = Hold()
        self.held_count = 0
        self.release = self._hold.release

    async def apply(self, frame: Frame, link: Link) -> None:
        name = next((each for each in self._left if bytes((len(each) + 1,)) + each in frame.data), None)
        if name is None:
            self.held_count += 1
            await self._hold.apply(frame, link)
        elif self._left.pop(name):
            await link.write(frame.data)
        else:
            link.end_connection(reset=True)


class Rounds:
    """Kills on one cluster.

    Args:
        cluster: Of three nodes.
        proxies: By node.
        seed: Of the choices.
    """

    def __init__(self, cluster: KafkaCluster, proxies: dict[int, FaultProxy], seed: int) -> None:
        self._cluster, self._proxies = cluster, proxies
        self._rng = random.Random(seed)
        self._servers = cluster.bootstrap("PROXIED")
        self.said: dict[str, str] = {}
        self.takeovers = 0

    def run(self, number: int) -> None:
        """Commit, kill the coordinator, take over, and start it again."""
        rng, cluster = self._rng, self._cluster
        victim = rng.choice(sorted(set(self._leaders().values()) & set(cluster.node_ids)))
        names = list(self._names(number, victim))
        with ThreadPoolExecutor(2 * PRODUCERS) as pool:
            producers = list(pool.map(self._begun, names))
            for name in names:
                if rng.random() < 0.1:  # taken over before the commit, which must be refused
                    ready(self._servers, name).close(CALL_S)
            share = rng.choice((0.0, 0.5, 1.0))
            action = rng.choice((Drop(), DropAndReset()))
            self._proxies[victim].on_reply(END_TXN, action, times=None, probability=share)
            start = threading.Barrier(len(names) + 1)
            commits = [
                pool.submit(self._commit, producer, start, rng.uniform(0, SPREAD_S), rng.random() < 0.15)
                for producer in producers
            ]
            start.wait()
            time.sleep(rng.uniform(0, SPREAD_S))  # the time of a kill is the point
            cluster.kill9(victim)
            self._proxies[victim].clear()
            successors = [pool.submit(ready, self._servers, name) for name in names if rng.random() < 0.5]
            self._collect(names, commits)
            cluster.start_node(victim)
            cluster.wait_until_ready()
            for successor in successors:
                successor.result(PATIENCE_S).close(CALL_S)
            self.takeovers += len(successors)
            for producer in producers:
                producer.close(0)
        for name in names:
            ready(self._servers, name).close(CALL_S)  # ends what was given up

    def lose(self, number: int) -> None:
        """Lose the answers of commits, or the commits, and have their repetitions refused."""
        rng = self._rng
        node_id = rng.choice(sorted(set(self._leaders().values()) & set(self._cluster.node_ids)))
        names = list(self._names(number, node_id))
        reaching = {name for name in names if rng.random() < 0.7}
        first = LoseFirst(names, reaching)
        with ThreadPoolExecutor(PRODUCERS) as pool:
            producers = list(pool.map(self._begun, names))
            self._proxies[node_id].on_reply(END_TXN, DropAndReset(), times=len(reaching))
            self._proxies[node_id].on_request(END_TXN, first, times=None)
            commits = [pool.submit(commit, producer, False) for producer in producers]
            try:
                wait_until(lambda: first.held_count == len(names), PATIENCE_S, "every commit to be repeated")
                for name in names:
                    ready(self._cluster.direct_bootstrap(), name).close(CALL_S)
                self.takeovers += len(names)
            finally:
                first.release()
            self._collect(names, commits)
            self._proxies[node_id].clear()
            for producer in producers:
                producer.close(0)

    def _names(self, number: int, node_id: int) -> Iterator[str]:
        """Transactional ids whose coordinator is a node."""
        leaders = self._leaders()
        wanted = [partition for partition, leader in leaders.items() if leader == node_id]
        found = attempt = 0
        while found < PRODUCERS:
            attempt += 1
            if partition_of(name := f"{number}-{attempt}", len(leaders)) in wanted:
                found += 1
                yield name

    def _leaders(self) -> dict[int, int]:
        partitions = self._cluster.admin().list_topics(timeout=30).topics[LOG].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def _begun(self, name: str) -> Producer:
        producer = ready(self._servers, name)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send(TOPIC, name.encode(), partition=partition).result(PATIENCE_S)
        return producer

    def _commit(self, producer: Producer, start: threading.Barrier, delay_s: float, gives_up: bool) -> str:
        start.wait()
        time.sleep(delay_s)
        return commit(producer, gives_up)

    def _collect(self, names: list[str], commits: list[Future[str]]) -> None:
        for name, future in zip(names, commits, strict=True):
            self.said[name] = future.result(2 * PATIENCE_S)


def check(servers: str, said: dict[str, str]) -> Tally:
    """Compare what was said with what a reader of committed data sees. Raises AssertionError."""
    seen = []
    for partition, records in read_all(servers, TOPIC, timeout_s=PATIENCE_S).items():
        names = [(record.value or b"").decode() for record in records]
        assert len(names) == len(set(names)), f"partition {partition} has a transaction twice"
        seen.append(set(names))
    assert all(names == seen[0] for names in seen), "a transaction is seen in part"
    wrong = {name: word for name, word in said.items() if not may_be(word, name in seen[0])}
    assert not wrong, f"said, and not so: {wrong}"
    return Counter((word, name in seen[0]) for name, word in said.items())


def run(kills: int, seed: int, level: int, losses: int = 0) -> Tally:
    """See the module. Raises AssertionError for what must not be."""
    with contextlib.ExitStack() as stack:
        cluster = KafkaCluster(
            3,
            listeners=("PLAINTEXT", "PROXIED"),
            overrides=OVERRIDES,
            features={"transaction.version": level},
            jvm_options=("-Xmx256m",),
        )
        stack.callback(cluster.close)
        proxies = {}
        for node_id in cluster.node_ids:
            proxies[node_id] = stack.enter_context(FaultProxy(cluster.address(node_id, "PROXIED"), seed=seed))
            cluster.advertise(node_id, *proxies[node_id].address, "PROXIED")
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS)
        rounds = Rounds(cluster, proxies, seed)
        ready(cluster.bootstrap("PROXIED"), "first").close()  # makes the coordinators' log
        for number in range(kills):
            rounds.run(number)
            print(f"{number + 1} kills; {rounds.takeovers} takeovers; {Counter(rounds.said.values())}", flush=True)
        for number in range(kills, kills + losses):
            rounds.lose(number)
        print(f"{losses} losses; {rounds.takeovers} takeovers; {Counter(rounds.said.values())}", flush=True)
        check_ends(cluster.direct_bootstrap(), TOPIC)
        return check(cluster.direct_bootstrap(), rounds.said)


def plant() -> contextlib.AbstractContextManager[object]:
    """Have a lost answer leave no doubt, which is wrong: what `run` raises shows that it would be noticed."""
    return mock.patch.object(machine, "after_silence", lambda before, *, is_commit: before)


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.commit_outcomes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=20, help="of coordinators")
    parser.add_argument("--losses", type=int, default=10, help="rounds in which answers are lost and no broker dies")
    parser.add_argument("--plant", action="store_true", help="plant a bug: a lost answer leaves no doubt")
    parser.add_argument("--level", type=int, choices=(1, 2), default=2, help="transaction.version of the cluster")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with plant() if arguments.plant else contextlib.nullcontext():
        tally = run(arguments.kills, arguments.seed, arguments.level, arguments.losses)
    for (said, is_seen), count in sorted(tally.items()):
        print(f"{count:5} {said}: {'seen' if is_seen else 'not seen'}")


if __name__ == "__main__":
    main()
