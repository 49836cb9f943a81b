"""Writes with a write_id that die and are run again: `python -m tests.campaigns.repeated_writes --kills 500`.

Each write is tried until a try ends well; each try but the last is killed before or behind a step that dice choose, or
runs beside others that want the same. With `--broker-kills` one of three brokers is killed every few seconds. A reader
of committed data must find each row of each write once, and at most one try of a write may report that it wrote.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.cluster import KafkaCluster
from tests.kafka.reading import read_values
from tests.support.marks.repeated_write import KILLS, SHAPES

TOPIC, PARTITIONS, ROWS = "written", 3, 20
MOST_AT_ONCE = 3
TRY_S = 180.0


@dataclass(frozen=True)
class Limits:
    """When a campaign ends: after so many killed tries, or at `end_s` (monotonic)."""

    kills: int
    end_s: float


@dataclass
class Tally:
    """What happened."""

    writes: int = 0
    tries: int = 0
    killed: int = 0
    failed: int = 0
    wrote: int = 0
    already: int = 0
    broker_kills: int = 0
    wrong: list[str] = field(default_factory=list)


def attempt(servers: str, write_id: str, shape: str, step: str) -> tuple[str, str]:
    """Run one try; return what it printed, `killed` or `failed`, and why."""
    command = [sys.executable, "-m", "tests.support.marks.repeated_write"]
    done = subprocess.run(
        [*command, servers, TOPIC, write_id, shape, str(ROWS), step, f"{write_id}/"],
        capture_output=True,
        text=True,
        timeout=TRY_S,
        check=False,
    )
    if done.returncode < 0:
        return "killed", ""
    return (done.stdout.split()[0], "") if done.returncode == 0 else ("failed", done.stderr[-400:])


def make_write(servers: str, number: int, dice: random.Random, tally: Tally) -> None:
    """Try a write until one try has ended well, and once more."""
    write_id = f"write-{number}"
    ends: Counter[str] = Counter()
    shape = dice.choice((*SHAPES, "parts"))
    is_last = False
    while True:
        at_once = dice.choice((1, 1, 1, 2, MOST_AT_ONCE))
        steps = [dice.choice(KILLS) if dice.random() < 0.6 and not is_last else "none" for _ in range(at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            found = list(pool.map(lambda step: attempt(servers, write_id, shape, step), steps))
        ends.update(end for end, _ in found)
        if is_last:
            break
        is_last = ends["wrote"] + ends["already"] > 0
    tally.writes += 1
    tally.tries += ends.total()
    tally.killed += ends["killed"]
    tally.failed += ends["failed"]
    tally.wrote += ends["wrote"]
    tally.already += ends["already"]
    if ends["wrote"] > 1:
        tally.wrong.append(f"{write_id}: {ends['wrote']} tries say that they wrote it")


@contextmanager
def killing(brokers: Callable[[random.Random], None] | None, dice: random.Random, tally: Tally) -> Iterator[None]:
    """Kill a broker every few seconds, and start it again."""
    if brokers is None:
        yield
        return
    stopping = threading.Event()

    def loop() -> None:
        while not stopping.wait(dice.uniform(1.0, 4.0)):
            brokers(dice)
            tally.broker_kills += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(TRY_S)


def run(
    servers: str, limits: Limits, seed: int, brokers: Callable[[random.Random], None] | None = None, workers: int = 2
) -> Tally:
    """Make writes until so many tries were killed, or the time is over; compare what a reader finds."""
    dice, tally = random.Random(seed), Tally()
    number = 0
    with killing(brokers, random.Random(seed + 1), tally):
        while tally.killed < limits.kills and time.monotonic() < limits.end_s:
            with ThreadPoolExecutor(workers) as pool:
                for done in [
                    pool.submit(make_write, servers, number + each, random.Random(dice.random()), tally)
                    for each in range(workers)
                ]:
                    done.result()
            number += workers
            print(tally, flush=True)
    found = Counter(value.strip() for value in read_values(servers, TOPIC))
    expected = {b"write-%d/%d" % (write, row) for write in range(number) for row in range(ROWS)}
    tally.wrong += [f"{value!r} is missing" for value in sorted(expected - found.keys())[:20]]
    tally.wrong += [f"{value!r} is there {count} times" for value, count in found.items() if count > 1][:20]
    tally.wrong += [f"{value!r} is of no write" for value in sorted(found.keys() - expected)[:20]]
    return tally


def on_embedded(limits: Limits, seed: int, *, broker_kills: bool) -> Tally:
    """Run it on an embedded broker, or on three whose leaders die."""
    if not broker_kills:
        with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as broker:
            return run(broker.bootstrap_servers, limits, seed)
    with EmbeddedCluster(3, topics={TOPIC: PARTITIONS}) as cluster:

        def kill(dice: random.Random) -> None:
            broker = dice.choice(cluster.brokers)
            broker.kill()
            time.sleep(dice.uniform(0.1, 1.0))
            broker.start()

        return run(cluster.bootstrap_servers, limits, seed, kill)


def on_kafka(limits: Limits, seed: int, *, broker_kills: bool) -> Tally:
    """Run it on Apache Kafka, with one node, or with three of which one is killed at a time."""
    with KafkaCluster(3 if broker_kills else 1) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=3 if broker_kills else 1)

        def kill(dice: random.Random) -> None:
            node = dice.choice(cluster.running_nodes())
            cluster.kill9(node)
            time.sleep(dice.uniform(0.1, 2.0))
            cluster.start_node(node)
            cluster.wait_until_ready()

        return run(cluster.bootstrap(), limits, seed, kill if broker_kills else None)


def main() -> int:
    """See the module; return 1 if a row is missing or there twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.repeated_writes", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of tries")
    parser.add_argument("--minutes", type=float, default=60, help="begin no write after these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of the embedded broker")
    parser.add_argument("--broker-kills", action="store_true", help="three brokers, one of which dies at a time")
    arguments = parser.parse_args()
    where = on_kafka if arguments.kafka else on_embedded
    limits = Limits(arguments.kills, time.monotonic() + arguments.minutes * 60)
    tally = where(limits, arguments.seed, broker_kills=arguments.broker_kills)
    print(tally)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
