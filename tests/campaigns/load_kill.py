"""kill -9 at random instants of loads, resume, compare: `python -m tests.campaigns.load_kill --kills 200`.

Each load has a topic and an input of its own: a file of any format and codec, a folder of them, or stdin. It is killed
again and again, and continued with --resume, until it gets through; then an independent client reads the topic, only
what is committed if the load has transactions: every row once, in its partition in the order of the input, and nothing
else. Between kills the input is changed at random (which must be refused) and put back; during some runs another file
takes its place. With --deaths brokers are killed, too, one or all of them, and come back with their disks.

    manifest        progress is in a file
    transactions    progress is in the cluster, together with the rows
    two inputs      the same for two inputs, one after the other, with one transactional id; then both again
    nothing         --no-manifest: begins again; rows may be there more than once, none is lost

Exit status 1 if a row is lost, twice, foreign or out of order, a load is stuck, or a changed input was not refused.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.cluster import KafkaCluster
from tests.support.loader.kill_inputs import KINDS, KillInput, new_input
from tests.support.loader.killed_load import MANIFEST, NOTHING, TRANSACTIONS, KilledLoad, Servers, Tally, compare
from tests.support.loader.load_rig import LoadRig

PARTITIONS: Final = 3
TWO_INPUTS: Final = "two inputs"
MODES: Final = (MANIFEST, TRANSACTIONS, TWO_INPUTS, NOTHING)
SMALL_BATCHES: Final = {"max_message_bytes": "2048"}  # so that few rows are many requests


class OneBroker:
    """An embedded broker.

    Args:
        broker: Runs.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap_servers

    def die(self, rng: random.Random) -> None:
        """See Servers."""
        self._broker.kill()

    def come_back(self) -> None:
        """See Servers."""
        if not self._broker.is_running:
            self._broker.start()


class ThreeBrokers:
    """An embedded cluster.

    Args:
        cluster: Runs.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap_servers

    def die(self, rng: random.Random) -> None:
        """Kill one broker, or every process."""
        if rng.random() < 0.6:
            rng.choice(self._cluster.brokers).kill()
            return
        for process in (*self._cluster.brokers, self._cluster.controller):
            process.kill()

    def come_back(self) -> None:
        """See Servers."""
        for process in (self._cluster.controller, *self._cluster.brokers):
            if not process.is_running:
                process.start()
        self._cluster.wait_until_in_sync(60)


class ApacheKafka:
    """A node of Apache Kafka.

    Args:
        cluster: Runs.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap()
        self._is_dead = False

    def die(self, rng: random.Random) -> None:
        """See Servers."""
        self._cluster.kill9(1)
        self._is_dead = True

    def come_back(self) -> None:
        """See Servers."""
        if self._is_dead:
            self._cluster.restart(1)
            self._is_dead = False


@contextlib.contextmanager
def servers_of(kind: str) -> Iterator[Servers]:
    """Start what loads send to."""
    if kind == "embedded":
        with EmbeddedBroker() as broker:
            yield OneBroker(broker)
    elif kind == "cluster":
        with EmbeddedCluster(brokers=3, session_timeout_ms=3_000) as cluster:
            yield ThreeBrokers(cluster)
    else:
        with contextlib.closing(KafkaCluster(1)) as kafka:
            kafka.start()
            yield ApacheKafka(kafka)


def kill_loads(
    servers: Servers,
    directory: Path,
    mode: str,
    kills: int,
    *,
    seed: int,
    kinds: Sequence[str] = KINDS,
    row_count: int = 50_000,
    longest_s: float = 0.6,
    has_rate: bool = False,
    has_deaths: bool = False,
    limit_s: float = float("inf"),
) -> Tally:
    """Kill loads until there were `kills` of it, and the last one is through.

    Args:
        servers: Where to.
        directory: For inputs and manifests.
        mode: One of MODES.
        kills: How many.
        seed: Of everything random but the scheduling of processes.
        kinds: Of inputs, to choose from.
        row_count: Rows of an input.
        longest_s: The latest instant of a kill, after the first sign of progress.
        has_rate: Loads have a --rate, so that blocks are parted.
        has_deaths: Brokers die, too.
        limit_s: No load begins after this time.
    """
    rng, tally, began_s = random.Random(seed), Tally(), time.monotonic()
    while tally.kills < kills and time.monotonic() - began_s < limit_s:
        with tempfile.TemporaryDirectory(dir=directory) as own:
            kill_once(servers, Path(own), mode, rng, tally, kinds, row_count, longest_s, has_rate, has_deaths)
        print(tally, flush=True)
        if not tally.is_good:
            break
    return tally


def kill_once(
    servers: Servers,
    directory: Path,
    mode: str,
    rng: random.Random,
    tally: Tally,
    kinds: Sequence[str],
    row_count: int,
    longest_s: float,
    has_rate: bool,
    has_deaths: bool,
) -> None:
    """Make a topic and load one input into it, or two, and compare."""
    topic = f"kill-{uuid.uuid4().hex[:8]}"
    options = SMALL_BATCHES if rng.random() < 0.7 else {}
    LoadRig(servers.bootstrap, directory, topic).create(PARTITIONS, **options)
    has_keys = rng.random() < 0.5
    arguments = [*(["--key", "id"] if has_keys else []), *(["--rate", str(row_count)] if has_rate else [])]
    keeps = TRANSACTIONS if mode == TWO_INPUTS else mode
    inputs = [new_input(directory, "a", row_count, rng, kinds=kinds)]
    if mode == TWO_INPUTS:  # of two pipes the second one has no --resume, since nobody can tell it from the first
        inputs.append(new_input(directory, "b", row_count, rng, kinds=kinds, may_be_pipe=not inputs[0].is_pipe))
    loads = []
    for each in inputs:
        load = KilledLoad(
            input=each,
            servers=servers,
            topic=topic,
            keeps=keeps,
            directory=directory,
            name=f"load-of-{topic}",
            arguments=arguments,
            longest_s=longest_s,
            has_deaths=has_deaths,
            rng=rng,
            tally=tally,
        )
        loads.append(load)
        load.run_to_its_end()
    if mode == TWO_INPUTS:
        assert {load.repeat() for load in loads} <= {0, 2}
    compare(servers, topic, keeps, rows_of(inputs), has_keys=has_keys, tally=tally)


def rows_of(inputs: Sequence[KillInput]) -> list[bytes]:
    """The rows of inputs, one after the other."""
    return [row for each in inputs for row in each.rows]


def main() -> int:
    """Run as the arguments say, print the tally, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.load_kill",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mode", choices=MODES, default=MANIFEST)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--input", action="append", choices=sorted({*KINDS}), help="only inputs of this kind")
    parser.add_argument("--broker", choices=("embedded", "cluster", "kafka"), default="embedded")
    parser.add_argument("--rows", type=int, default=50_000, help="of an input")
    parser.add_argument(
        "--longest-s", type=float, default=0.6, help="latest instant of a kill after a sign of progress"
    )
    parser.add_argument("--rate", action="store_true", help="loads have a --rate that makes each take about a second")
    parser.add_argument("--deaths", action="store_true", help="brokers die and come back, too")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="no load begins after this time")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    started_s = time.monotonic()
    with servers_of(options.broker) as servers, tempfile.TemporaryDirectory() as directory:
        tally = kill_loads(
            servers,
            Path(directory),
            options.mode,
            options.kills,
            seed=options.seed,
            kinds=options.input or KINDS,
            row_count=options.rows,
            longest_s=options.longest_s,
            has_rate=options.rate,
            has_deaths=options.deaths,
            limit_s=options.limit_s,
        )
    print(f"{options.mode}: {tally} in {time.monotonic() - started_s:.0f} s")
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
